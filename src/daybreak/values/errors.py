"""How a value is refused: what is wrong with it, and on the way up from the depths, where."""

from __future__ import annotations

import sys
from reprlib import Repr
from typing import Any, Final

from daybreak.core.errors import BadArguments, BadInput, NotEncodable, TooLarge

DEPTH_LIMIT: Final = 64
_PATH_SHOWN: Final = 120

_repr: Final = Repr()
_repr.maxstring = _repr.maxother = 60
_ARRAYS: Final = ("__array__", "__dataframe__", "__arrow_c_stream__")
_TYPED: Final = ("__dataclass_fields__", "__struct_fields__", "__pydantic_validator__", "_member_map_", "_fields")


class Refusal(Exception):
    """Raised inside; whoever knows what the value is called turns it into the `error` that users see."""

    def __init__(self, error: type[BadInput], told: str, path: str = "") -> None:
        super().__init__(told)
        self.error = error
        self.told = told
        self.path = path

    def at(self, step: str) -> Refusal:
        self.path = step + self.path
        return self

    def named(self, root: str) -> BadInput:
        path = self.path if len(self.path) <= _PATH_SHOWN else f"{self.path[:_PATH_SHOWN]}..."
        return self.error(f"{root}{path}: {self.told}")


def short(value: object) -> str:
    """A repr that fits into a sentence, whatever the value's own repr does."""
    try:
        return _repr.repr(value)
    except Exception:  # noqa: BLE001 - also Python's own, of an int with more than 4300 digits
        return f"<{type(value).__name__}>"


def step(key: object) -> str:
    return f".{key}" if type(key) is str and key.isidentifier() else f"[{short(key)}]"


def too_deep() -> Refusal:
    return Refusal(TooLarge, f"nested deeper than {DEPTH_LIMIT} levels")


def unfit(value: object, wanted: str) -> Refusal:
    """The value is not what the annotation wants."""
    return unlike(value) if _is_array(value) else Refusal(BadArguments, f"{short(value)} is no {wanted}")


def extended(value: object, wanted: str) -> Refusal:
    """The value is of a subclass, of which only the wanted class would come back."""
    name = type(value).__qualname__
    return Refusal(NotEncodable, f"a {name} would come back as a {wanted}, which it extends; annotate it with {name}")


def unlike(value: object) -> Refusal:
    """The value would not come back equal."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if _is_array(value):
        told = f"a {name} does not travel, as no array or data frame does; store it in a file and pass the file's path"
    elif any(hasattr(kind, mark) for mark in _TYPED):
        told = (
            f"a {name} would not come back equal where nothing says its type; "
            f"annotate it with {kind.__qualname__}, or pass plain data"
        )
    else:
        told = (
            f"a {name} would not come back equal; "
            "pass plain data (numbers, text, bytes, dates, lists, tuples, sets, dicts)"
        )
    return Refusal(NotEncodable, told)


def _is_array(value: object) -> bool:
    return not is_numpy_scalar(value) and any(hasattr(type(value), mark) for mark in _ARRAYS)


def is_numpy_scalar(value: object) -> bool:
    return isinstance(value, numpy_class("generic"))


def numpy_class(name: str) -> Any:
    """A class of numpy, for isinstance; nothing is an instance of it where nobody has imported numpy."""
    return getattr(sys.modules.get("numpy"), name, ())

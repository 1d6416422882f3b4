"""The refusal of a value: what is wrong with it, and its path, which grows on the way up."""

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
_CLASS_MARKS: Final = ("__dataclass_fields__", "__struct_fields__", "__pydantic_validator__", "_member_map_", "_fields")


class Refusal(Exception):
    """Raised inside this package. `as_error` turns it into the error that users see."""

    def __init__(self, error: type[BadInput], message: str, path: str = "") -> None:
        super().__init__(message)
        self.error = error
        self.message = message
        self.path = path

    def at(self, step: str) -> Refusal:
        """The same refusal, one level further up."""
        self.path = step + self.path
        return self

    def as_error(self, root: str) -> BadInput:
        path = self.path if len(self.path) <= _PATH_SHOWN else f"{self.path[:_PATH_SHOWN]}..."
        return self.error(f"{root}{path}: {self.message}")


def short_repr(value: object) -> str:
    """A repr that is short enough for an error message, even if the value's own repr fails."""
    try:
        return _repr.repr(value)
    except Exception:  # noqa: BLE001 - Python's own too, for an int with more than 4300 digits
        return f"<{type(value).__name__}>"


def step(key: object) -> str:
    """One step of a path: `.name` or `[key]`."""
    return f".{key}" if type(key) is str and key.isidentifier() else f"[{short_repr(key)}]"


def too_deep() -> Refusal:
    return Refusal(TooLarge, f"nested deeper than {DEPTH_LIMIT} levels")


def mismatch(value: object, wanted: str) -> Refusal:
    """The value does not have the annotated type."""
    if _is_array(value):
        return Refusal(BadArguments, f"a {type(value).__name__} is not a valid {wanted}")
    return Refusal(BadArguments, f"{short_repr(value)} is not a valid {wanted}")


def subclass_refusal(value: object, wanted: str) -> Refusal:
    """The value is of a subclass; what the subclass adds would be lost."""
    name = type(value).__qualname__
    return Refusal(NotEncodable, f"a {name} would be decoded as its base class {wanted}; annotate it with {name}")


def not_encodable(value: object) -> Refusal:
    """The value would not be decoded equal."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if _is_array(value):
        message = (
            f"a {name} cannot be stored; pass a numpy array, or a DataFrame of pandas or polars, "
            "or save it to a file and pass File(path)"
        )
    elif any(hasattr(kind, mark) for mark in _CLASS_MARKS):
        message = (
            f"a {name} would not be decoded equal without an annotation; "
            f"annotate it with {kind.__qualname__}, or pass plain data"
        )
    else:
        message = (
            f"a {name} would not be decoded equal; "
            "pass plain data (numbers, text, bytes, dates, lists, tuples, sets, dicts)"
        )
    return Refusal(NotEncodable, message)


def _is_array(value: object) -> bool:
    return not is_numpy_scalar(value) and any(hasattr(type(value), mark) for mark in _ARRAYS)


def is_numpy_scalar(value: object) -> bool:
    return isinstance(value, numpy_class("generic"))


def numpy_class(name: str) -> Any:
    """A class of numpy, for isinstance. If numpy is not imported, an empty tuple, which nothing is an instance of."""
    return getattr(sys.modules.get("numpy"), name, ())

"""What annotations mean. Texts are resolved one by one and as late as possible: a name that exists for type checkers
only costs its own parameter the type, and no other."""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec


class Unresolved(msgspec.Struct, frozen=True):
    """An annotation that names what does not exist at run time."""

    text: str


class Parameter(msgspec.Struct, frozen=True):
    name: str
    kind: str  # as inspect has it: POSITIONAL_ONLY, ...
    default: Any
    is_needed: bool
    annotation: Any


def parameters_of(function: Callable[..., Any]) -> list[Parameter]:
    import inspect  # noqa: PLC0415 - only whoever has tasks needs it

    if sys.version_info >= (3, 14):
        import annotationlib  # noqa: PLC0415

        signature = inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    else:
        signature = inspect.signature(function)
    names = _names_around(function)
    empty = inspect.Parameter.empty
    return [
        Parameter(
            found.name,
            found.kind.name,
            found.default,
            found.default is empty and not found.kind.name.startswith("VAR"),
            Any if found.annotation is empty else resolved(found.annotation, names, {}),
        )
        for found in signature.parameters.values()
    ]


def returned_by(function: Callable[..., Any]) -> Any:
    """What a function says it returns; Any if it does not say."""
    return resolved(_annotations(_innermost(function)).get("return", Any), _names_around(function), {})


def hints_of(kind: type) -> dict[str, Any]:
    """What a class says of its fields, those of its bases included."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        # The module first: in `date: date | None = None` the name means the type, not the default.
        near = vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}
        for name, annotation in _annotations(base).items():
            found[name] = resolved(annotation, {**vars(base), kind.__name__: kind}, near)
    return found


def resolved(annotation: Any, names: Mapping[str, Any], near: Mapping[str, Any]) -> Any:
    stub = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(stub, dict(names), dict(near), include_extras=True)["it"]
    except Exception:  # noqa: BLE001 - a text may hold anything, and evaluating it raise anything
        return Unresolved(annotation if isinstance(annotation, str) else spelt(annotation))


def spelt(annotation: Any) -> str:
    """An annotation as one would write it."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Union or origin is types.UnionType:
        return " | ".join(map(spelt, args))
    if isinstance(annotation, types.GenericAlias) and not args:
        return "tuple[()]"
    if isinstance(kind := origin or annotation, type):
        name = "None" if kind is type(None) else kind.__name__
        return f"{name}[{', '.join(map(spelt, args))}]" if args else name
    return "..." if annotation is ... else str(annotation).replace("typing.", "")


def _annotations(owner: Any) -> Mapping[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib  # noqa: PLC0415

        return annotationlib.get_annotations(owner, format=annotationlib.Format.FORWARDREF)
    import inspect  # noqa: PLC0415

    return inspect.get_annotations(owner)


def _innermost(function: Any) -> Any:
    """The function itself, without what was put around it."""
    while True:
        if hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif isinstance(function, types.MethodType):
            function = function.__func__
        elif hasattr(function, "func") and hasattr(function, "keywords"):
            function = function.func  # a partial
        elif isinstance(type(function).__call__, types.FunctionType):
            function = type(function).__call__  # an object that can be called
        else:
            return function


def _names_around(function: Any) -> Mapping[str, Any]:
    names: Mapping[str, Any] = getattr(_innermost(function), "__globals__", {})
    return names

"""Resolves annotations. Strings are resolved one by one and as late as possible: if a name exists only for type
checkers, only its own parameter loses its type."""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec


class Unresolved(msgspec.Struct, frozen=True):
    """An annotation that cannot be resolved at run time."""

    text: str


class Parameter(msgspec.Struct, frozen=True):
    name: str
    kind: str  # a name of inspect's: POSITIONAL_ONLY, ...
    default: Any
    is_required: bool
    annotation: Any


def parameters_of(function: Callable[..., Any]) -> list[Parameter]:
    import inspect  # noqa: PLC0415 - only programs with tasks need it

    if sys.version_info >= (3, 14):
        import annotationlib  # noqa: PLC0415

        signature = inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    else:
        signature = inspect.signature(function)
    names = _global_names(function)
    empty = inspect.Parameter.empty
    return [
        Parameter(
            found.name,
            found.kind.name,
            found.default,
            found.default is empty and not found.kind.name.startswith("VAR"),
            Any if found.annotation is empty else resolve(found.annotation, names, {}),
        )
        for found in signature.parameters.values()
    ]


def return_annotation(function: Callable[..., Any]) -> Any:
    """The return annotation of a function; Any without one."""
    return resolve(_annotations(_innermost(function)).get("return", Any), _global_names(function), {})


def hints_of(kind: type) -> dict[str, Any]:
    """The annotations of a class and its bases."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        # The module first: in `date: date | None = None` the name means the type, not the default.
        local = vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}
        for name, annotation in _annotations(base).items():
            found[name] = resolve(annotation, {**vars(base), kind.__name__: kind}, local)
    return found


def resolve(annotation: Any, names: Mapping[str, Any], local: Mapping[str, Any]) -> Any:
    """The type that an annotation means. `local` names take precedence over `names`."""
    stub = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(stub, dict(names), dict(local), include_extras=True)["it"]
    except Exception:  # noqa: BLE001 - evaluating a string may raise anything
        return Unresolved(annotation if isinstance(annotation, str) else annotation_text(annotation))


def annotation_text(annotation: Any) -> str:
    """An annotation as it is written in code."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Union or origin is types.UnionType:
        return " | ".join(map(annotation_text, args))
    if isinstance(annotation, types.GenericAlias) and not args:
        return "tuple[()]"
    if isinstance(kind := origin or annotation, type):
        name = "None" if kind is type(None) else kind.__name__
        return f"{name}[{', '.join(map(annotation_text, args))}]" if args else name
    return "..." if annotation is ... else str(annotation).replace("typing.", "")


def _annotations(owner: Any) -> Mapping[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib  # noqa: PLC0415

        return annotationlib.get_annotations(owner, format=annotationlib.Format.FORWARDREF)
    import inspect  # noqa: PLC0415

    return inspect.get_annotations(owner)


def _innermost(function: Any) -> Any:
    """The function itself, without wrappers, partials and bound methods."""
    while True:
        if hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif isinstance(function, types.MethodType):
            function = function.__func__
        elif hasattr(function, "func") and hasattr(function, "keywords"):
            function = function.func  # a partial
        elif isinstance(type(function).__call__, types.FunctionType):
            function = type(function).__call__  # a callable object
        else:
            return function


def _global_names(function: Any) -> Mapping[str, Any]:
    names: Mapping[str, Any] = getattr(_innermost(function), "__globals__", {})
    return names

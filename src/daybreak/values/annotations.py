"""From annotations to codecs."""

from __future__ import annotations

import collections.abc
import enum
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, Final, Literal, TypeVar

import msgspec

from daybreak.values.choices import Choice, Member
from daybreak.values.codec import Anything, Codec, Instance
from daybreak.values.containers import Many, OneOf, Row, Table
from daybreak.values.errors import numpy_class
from daybreak.values.hints import Unresolved, hints_of, spelt
from daybreak.values.records import Adapted, Fields, Keyed, Model, Record, Root
from daybreak.values.scalars import SCALARS, NumpyScalar, PathLike
from daybreak.values.secret import Secret
from daybreak.values.secrets import Hidden, Veiled

_ANY: Final = Anything()
_MANY: Final[Mapping[Any, tuple[type, ...]]] = {
    list: (list,),
    set: (set,),
    frozenset: (frozenset,),
    collections.abc.Sequence: (list, tuple),
    collections.abc.MutableSequence: (list,),
    collections.abc.Set: (set, frozenset),
    collections.abc.MutableSet: (set,),
    collections.abc.Collection: (list, tuple, set, frozenset),
    collections.abc.Iterable: (list, tuple, set, frozenset),
}
_TABLES: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_WRAPPERS: Final = (typing.Annotated, typing.Required, typing.NotRequired, typing.Final)

Bound = Mapping[Any, Any]  # what the type variables of a generic class stand for


class Codecs:
    """The codec of any annotation; of a class always the same one, so that a class may hold itself."""

    def __init__(self, *, in_model: bool = False) -> None:
        self._of_class: dict[Any, Codec] = {}
        self._opened: set[int] = set()
        self._in_model = in_model  # of pydantic's, which knows more classes than we do

    def of(self, annotation: Any, bound: Bound | None = None) -> Codec:
        bound = {} if bound is None else bound
        origin, args = typing.get_origin(annotation), typing.get_args(annotation)
        if origin in _WRAPPERS:
            return self.of(args[0], bound)
        if origin is typing.Union or origin is types.UnionType:
            choices = [self.of(arg, bound) for arg in args]
            return OneOf(" | ".join(choice.name for choice in choices), choices)
        if origin is Literal:
            return Choice(spelt(annotation), [(option, self.of(type(option))) for option in args])
        if isinstance(kind := origin or annotation, type):
            return self._of_kind(kind, spelt(annotation), args, bound)
        if isinstance(annotation, Unresolved):
            return Anything(f"; {annotation.text}, its annotation, cannot be resolved when the program runs")
        return self._standing_for(annotation, bound)

    def _standing_for(self, annotation: Any, bound: Bound) -> Codec:
        """A name for another annotation: a type variable, a NewType, an alias."""
        if isinstance(annotation, TypeVar):
            return self.of(bound.get(annotation, annotation.__bound__ or Any))
        for attribute in ("__supertype__", "__value__"):
            if hasattr(annotation, attribute) and id(annotation) not in self._opened:
                self._opened.add(id(annotation))
                try:
                    return self.of(getattr(annotation, attribute), bound)
                finally:
                    self._opened.discard(id(annotation))
        return _ANY  # also an alias within itself, of which typing leaves a ForwardRef: plain values need no more

    def _of_kind(self, kind: Any, name: str, args: tuple[Any, ...], bound: Bound) -> Codec:
        if (scalar := SCALARS.get(kind)) is not None:
            return scalar
        if kind is object or kind is Any:
            return _ANY
        if kind is Secret:
            return Hidden(name, self.of(args[0], bound) if args else _ANY)
        if kind is tuple:
            return self._tuple(name, args, bound)
        if kind in _MANY:
            item = self.of(args[0], bound) if args else _ANY
            choices = [Many(name, each, item) for each in _MANY[kind]]
            return choices[0] if len(choices) == 1 else OneOf(name, choices)
        if kind in _TABLES:
            key, item = (self.of(arg, bound) for arg in (args if len(args) == 2 else (Any, Any)))
            return Table(name, key, item)
        return self._of_user(kind, name, [bound.get(arg, arg) if isinstance(arg, TypeVar) else arg for arg in args])

    def _tuple(self, name: str, args: tuple[Any, ...], bound: Bound) -> Codec:
        if name == "tuple":
            return Many(name, tuple, _ANY)
        if len(args) == 2 and args[1] is ...:
            return Many(name, tuple, self.of(args[0], bound))
        return Row(name, [self.of(arg, bound) for arg in args])

    def _of_user(self, kind: Any, name: str, args: list[Any]) -> Codec:
        if issubclass(kind, enum.Enum):
            return Member(name, kind)
        if issubclass(kind, PurePath):
            return PathLike(name, kind)
        if issubclass(kind, numpy_class("generic")):
            return NumpyScalar(name, kind)
        if hasattr(kind, "get_secret_value"):
            return Veiled(name, kind)
        if (known := self._of_class.get((kind, str(args)))) is None:
            bound = dict(zip(getattr(kind, "__parameters__", ()), args, strict=False))
            known = self._of_class[kind, str(args)] = self._fielded(kind, name, bound)
        return known

    def _fielded(self, kind: Any, name: str, bound: Bound) -> Codec:
        if hasattr(kind, "__dataclass_fields__"):
            from dataclasses import MISSING, fields  # noqa: PLC0415 - whoever has a dataclass has imported it

            given = [field for field in fields(kind) if field.init]
            needed = [field.name for field in given if field.default is field.default_factory is MISSING]
            return Record(name, kind, self._fields(kind, [field.name for field in given], bound), needed)
        if hasattr(kind, "__struct_fields__"):
            names = kind.__struct_fields__
            defaults = dict(zip(reversed(names), reversed(kind.__struct_defaults__), strict=False))
            needed = [field for field in names if defaults.get(field, msgspec.NODEFAULT) is msgspec.NODEFAULT]
            return Record(name, kind, self._fields(kind, names, bound), needed)
        if typing.is_typeddict(kind):
            hints = hints_of(kind)
            needed = [field for field, hint in hints.items() if _is_required(kind, field, hint)]
            return Keyed(name, lambda: {field: self.of(hint, bound) for field, hint in hints.items()}, needed)
        if issubclass(kind, tuple) and hasattr(kind, "_field_defaults"):
            needed = [field for field in kind._fields if field not in kind._field_defaults]
            return Record(name, kind, self._fields(kind, kind._fields, bound), needed)
        if hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_fields"):
            made = Root if getattr(kind, "__pydantic_root_model__", False) else Model
            return made(name, kind, self._model_fields(kind))
        if self._in_model or hasattr(kind, "__get_pydantic_core_schema__"):
            return Adapted(name, kind)
        return Instance(name, kind)

    def _model_fields(self, kind: Any) -> Fields:
        inside = self if self._in_model else Codecs(in_model=True)
        return lambda: {name: inside.of(field.annotation) for name, field in kind.model_fields.items()}

    def _fields(self, kind: type, names: Iterable[str], bound: Bound) -> Fields:
        def fields() -> Mapping[str, Codec]:
            hints = hints_of(kind)
            return {name: self.of(hints.get(name, Any), bound) for name in names}

        return fields


def _is_required(kind: Any, field: str, hint: Any) -> bool:
    """Where annotations are texts, the class itself does not know which of its keys may be left out."""
    match typing.get_origin(hint):
        case typing.Required:
            return True
        case typing.NotRequired:
            return False
    return field in kind.__required_keys__

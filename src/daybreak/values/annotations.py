"""The codec of each annotation."""

from __future__ import annotations

import collections.abc
import enum
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, Final, Literal, TypeVar

import msgspec

from daybreak.values.choices import EnumCodec, LiteralCodec
from daybreak.values.classes import Fields, ModelCodec, PydanticCodec, RecordClassCodec, RootModelCodec, TypedDictCodec
from daybreak.values.codec import AnyCodec, Codec, InstanceCodec
from daybreak.values.containers import CollectionCodec, DictCodec, FixedTupleCodec, UnionCodec
from daybreak.values.errors import numpy_class
from daybreak.values.file import File
from daybreak.values.hints import Unresolved, annotation_text, hints_of
from daybreak.values.scalars import SCALARS, FileCodec, NumpyCodec, PathCodec
from daybreak.values.secret import Secret
from daybreak.values.secrets import ForeignSecretCodec, SecretCodec

_ANY: Final = AnyCodec()
_COLLECTIONS: Final[Mapping[Any, tuple[type, ...]]] = {
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
_MAPPINGS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_WRAPPERS: Final = (typing.Annotated, typing.Required, typing.NotRequired, typing.Final)

Bound = Mapping[Any, Any]  # the types that the type variables of a generic class are bound to


class Codecs:
    """Makes the codecs of annotations. A class has one codec, so a class may refer to itself."""

    def __init__(self, *, in_model: bool = False) -> None:
        self._by_class: dict[Any, Codec] = {}
        self._resolving: set[int] = set()
        self._in_model = in_model  # inside a pydantic model, where pydantic encodes the classes that we do not know

    def of(self, annotation: Any, bound: Bound | None = None) -> Codec:
        bound = {} if bound is None else bound
        origin, args = typing.get_origin(annotation), typing.get_args(annotation)
        if origin in _WRAPPERS:
            return self.of(args[0], bound)
        if origin is typing.Union or origin is types.UnionType:
            choices = [self.of(arg, bound) for arg in args]
            return UnionCodec(" | ".join(choice.name for choice in choices), choices)
        if origin is Literal:
            return LiteralCodec(annotation_text(annotation), [(option, self.of(type(option))) for option in args])
        if isinstance(kind := origin or annotation, type):
            return self._of_kind(kind, annotation_text(annotation), args, bound)
        if isinstance(annotation, Unresolved):
            return AnyCodec(f"; its annotation {annotation.text} cannot be resolved at run time")
        return self._of_alias(annotation, bound)

    def _of_alias(self, annotation: Any, bound: Bound) -> Codec:
        """The codec of a name for another annotation: a type variable, a NewType or an alias."""
        if isinstance(annotation, TypeVar):
            return self.of(bound.get(annotation, annotation.__bound__ or Any))
        for attribute in ("__supertype__", "__value__"):
            if hasattr(annotation, attribute) and id(annotation) not in self._resolving:
                self._resolving.add(id(annotation))
                try:
                    return self.of(getattr(annotation, attribute), bound)
                finally:
                    self._resolving.discard(id(annotation))
        return _ANY  # also for an alias inside itself, which typing leaves as a ForwardRef: plain values need no codec

    def _of_kind(self, kind: Any, name: str, args: tuple[Any, ...], bound: Bound) -> Codec:
        if (scalar := SCALARS.get(kind)) is not None:
            return scalar
        if kind is object or kind is Any:
            return _ANY
        if kind is File:
            return FileCodec()
        if kind is Secret:
            return SecretCodec(name, self.of(args[0], bound) if args else _ANY)
        if kind is tuple:
            return self._tuple(name, args, bound)
        if kind in _COLLECTIONS:
            item = self.of(args[0], bound) if args else _ANY
            choices = [CollectionCodec(name, each, item) for each in _COLLECTIONS[kind]]
            return choices[0] if len(choices) == 1 else UnionCodec(name, choices)
        if kind in _MAPPINGS:
            key, item = (self.of(arg, bound) for arg in (args if len(args) == 2 else (Any, Any)))
            return DictCodec(name, key, item)
        return self._of_user(kind, name, [bound.get(arg, arg) if isinstance(arg, TypeVar) else arg for arg in args])

    def _tuple(self, name: str, args: tuple[Any, ...], bound: Bound) -> Codec:
        if name == "tuple":
            return CollectionCodec(name, tuple, _ANY)
        if len(args) == 2 and args[1] is ...:
            return CollectionCodec(name, tuple, self.of(args[0], bound))
        return FixedTupleCodec(name, [self.of(arg, bound) for arg in args])

    def _of_user(self, kind: Any, name: str, args: list[Any]) -> Codec:
        if issubclass(kind, enum.Enum):
            return EnumCodec(name, kind)
        if issubclass(kind, PurePath):
            return PathCodec(name, kind)
        if issubclass(kind, numpy_class("generic")):
            return NumpyCodec(name, kind)
        if hasattr(kind, "get_secret_value"):
            return ForeignSecretCodec(name, kind)
        if (known := self._by_class.get((kind, str(args)))) is None:
            bound = dict(zip(getattr(kind, "__parameters__", ()), args, strict=False))
            known = self._by_class[kind, str(args)] = self._of_fields_class(kind, name, bound)
        return known

    def _of_fields_class(self, kind: Any, name: str, bound: Bound) -> Codec:
        if hasattr(kind, "__dataclass_fields__"):
            from dataclasses import MISSING, fields  # noqa: PLC0415 - a program with dataclasses has imported it

            found = [field for field in fields(kind) if field.init]
            required = [field.name for field in found if field.default is field.default_factory is MISSING]
            return RecordClassCodec(name, kind, self._fields(kind, [field.name for field in found], bound), required)
        if hasattr(kind, "__struct_fields__"):
            names = kind.__struct_fields__
            defaults = dict(zip(reversed(names), reversed(kind.__struct_defaults__), strict=False))
            required = [field for field in names if defaults.get(field, msgspec.NODEFAULT) is msgspec.NODEFAULT]
            return RecordClassCodec(name, kind, self._fields(kind, names, bound), required)
        if typing.is_typeddict(kind):
            hints = hints_of(kind)
            required = [field for field, hint in hints.items() if _is_required(kind, field, hint)]
            return TypedDictCodec(
                name, lambda: {field: self.of(hint, bound) for field, hint in hints.items()}, required
            )
        if issubclass(kind, tuple) and hasattr(kind, "_field_defaults"):
            required = [field for field in kind._fields if field not in kind._field_defaults]
            return RecordClassCodec(name, kind, self._fields(kind, kind._fields, bound), required)
        if hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_fields"):
            is_root = getattr(kind, "__pydantic_root_model__", False)
            return (RootModelCodec if is_root else ModelCodec)(name, kind, self._model_fields(kind))
        if self._in_model or hasattr(kind, "__get_pydantic_core_schema__"):
            return PydanticCodec(name, kind)
        return InstanceCodec(name, kind)

    def _model_fields(self, kind: Any) -> Fields:
        codecs = self if self._in_model else Codecs(in_model=True)
        return lambda: {name: codecs.of(field.annotation) for name, field in kind.model_fields.items()}

    def _fields(self, kind: type, names: Iterable[str], bound: Bound) -> Fields:
        def fields() -> Mapping[str, Codec]:
            hints = hints_of(kind)
            return {name: self.of(hints.get(name, Any), bound) for name in names}

        return fields


def _is_required(kind: Any, field: str, hint: Any) -> bool:
    """Whether a TypedDict requires a key. If annotations are strings, the class itself does not know."""
    match typing.get_origin(hint):
        case typing.Required:
            return True
        case typing.NotRequired:
            return False
    return field in kind.__required_keys__

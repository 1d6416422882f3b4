"""The arguments and the result of one job of a batch task: an item of the list that its function takes, and an element
of the list that it returns."""

from __future__ import annotations

import types
import typing
from collections import abc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from daybreak.core.errors import BadArguments, BadInput
from daybreak.values.arguments import Arguments
from daybreak.values.errors import Refusal, short_repr
from daybreak.values.lazy import once
from daybreak.values.result import Result
from daybreak.values.tagged_json import write_json

if TYPE_CHECKING:
    from daybreak.values.codec import Codec
    from daybreak.values.signature import Signature

ITEM: Final = "item"  # the name of the argument if items have no fields
_LISTS: Final = (list, tuple, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable)
_MAPPINGS: Final = (dict, abc.Mapping, abc.MutableMapping)


class ItemArguments(Arguments):
    """The arguments of a job whose function takes a list of such items.

    If items are of a class with named fields, or dicts whose keys are text, the fields are the arguments. So they can
    be given by name, as those of any task. Any other item is one argument, `item`."""

    @once
    def _annotation(self) -> Any:
        return item_annotation(self._function, context=self._context)

    @once
    def _codec(self) -> Codec:
        from daybreak.values.annotations import Codecs  # noqa: PLC0415 - as in arguments.py

        return Codecs().of(self._annotation)

    @once
    def is_fields_class(self) -> bool:
        """Whether items are of a class with named fields."""
        from daybreak.values.classes import FieldsCodec, RootModelCodec  # noqa: PLC0415

        return isinstance(self._codec, FieldsCodec) and not isinstance(self._codec, RootModelCodec)

    @once
    def is_dict(self) -> bool:
        """Whether items are dicts whose keys are text."""
        origin, args = typing.get_origin(self._annotation) or self._annotation, typing.get_args(self._annotation)
        return origin in _MAPPINGS and (not args or args[0] is str)

    @once
    def _signature(self) -> Signature:
        from daybreak.values.hints import Parameter, parameters_of  # noqa: PLC0415
        from daybreak.values.signature import signature_of  # noqa: PLC0415

        if self.is_dict:
            args = typing.get_args(self._annotation)
            return signature_of([Parameter("fields", "VAR_KEYWORD", None, False, args[1] if args else Any)])
        if not self.is_fields_class:
            return signature_of([Parameter(ITEM, "POSITIONAL_OR_KEYWORD", None, True, self._annotation)])
        return self._signature_of_class(parameters_of)

    def _signature_of_class(self, parameters_of: Callable[..., Any]) -> Signature:
        from daybreak.values.classes import FieldsCodec, ModelCodec  # noqa: PLC0415
        from daybreak.values.scalars import Scalar  # noqa: PLC0415
        from daybreak.values.signature import Signature  # noqa: PLC0415

        codec = self._codec
        assert isinstance(codec, FieldsCodec)
        defaults = {}
        if not isinstance(self._annotation, type) or not typing.is_typeddict(self._annotation):
            found = parameters_of(typing.get_origin(self._annotation) or self._annotation)
            defaults = {one.name: one.default for one in found if not one.is_required and one.name in codec.fields}
        fields = codec.fields
        return Signature(
            codecs=fields,
            writers={name: one.write if one.safe else one.write_checked for name, one in fields.items()},
            unchanged_types={name: one.kind for name, one in fields.items() if isinstance(one, Scalar)},
            required=frozenset(set(fields) - set(defaults) if isinstance(codec, ModelCodec) else codec.required),
            defaults=defaults,
            positional=(),
            positional_only=frozenset(),
            var_positional=None,
            var_keyword=None,
        )

    @once
    def names(self) -> list[str]:
        """The names of the arguments, in order; none if items are dicts."""
        return list(self._signature.codecs)

    # -- items ---------------------------------------------------------------------------------------------------------

    def item_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The item of a call `submit(item)` or `submit(field=...)`."""
        if len(args) > 1 or (args and kwargs):
            raise BadArguments(
                f"{self._name}() is a batch task: give one item, or its fields by name; "
                "submit_many(items) makes a job of each item"
            )
        if args:
            return args[0]
        if self.is_dict:
            return dict(kwargs)
        for name in kwargs:
            if name not in self._signature.codecs:
                self._refuse_unknown(name)
        if not self._signature.required <= kwargs.keys():
            self._refuse_missing(kwargs)
        if not self.is_fields_class:
            return kwargs[ITEM]
        if typing.is_typeddict(typing.get_origin(self._annotation) or self._annotation):
            return dict(kwargs)
        return self._make_item(kwargs)

    def _make_item(self, fields: Mapping[str, Any]) -> Any:
        from daybreak.values.classes import build_instance  # noqa: PLC0415

        try:
            return build_instance(self._codec.name, lambda: self._annotation(**fields))
        except Refusal as refusal:
            raise refusal.as_error("args") from None

    def fields_of(self, item: Any) -> dict[str, Any]:
        """An item by the names of the arguments."""
        if self.is_dict and isinstance(item, Mapping):
            return dict(item)
        if not self.is_fields_class:
            return {ITEM: item}
        if isinstance(item, Mapping):
            return dict(item)
        return {name: getattr(item, name) for name in self.names if hasattr(item, name)}

    # -- writing and reading -------------------------------------------------------------------------------------------

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """One item. BadArguments, NotEncodable and TooLarge name the field at fault."""
        item = self.item_of(args, kwargs)
        if self.is_dict:
            if not isinstance(item, Mapping):
                raise BadArguments(f"{self._name}(): {short_repr(item)} is not a valid {self._codec.name}")
            return super().encode_named(item)
        if not self.is_fields_class:
            return super().encode_named({ITEM: item})
        try:
            return write_json(self._codec.write_checked(item, 0))
        except Refusal as refusal:
            raise refusal.as_error(ITEM) from None

    def encode_named(self, kwargs: Mapping[str, object]) -> bytes:
        """As `encode`, with every field by its name."""
        return self.encode((), kwargs)

    def decode(self, data: bytes) -> tuple[list[Any], dict[str, Any]]:
        """The item, as the only positional argument. BadArguments if what is stored does not fit its type."""
        found = self.decode_named(data)
        if self.is_dict:
            return [found], {}
        if not self.is_fields_class:
            return [found[ITEM]], {}
        try:
            return [self._codec.read(self._read_object(data))], {}
        except Refusal as refusal:
            raise BadArguments(str(refusal.as_error(ITEM))) from None


class ElementResult(Result):
    """The result of one job of a batch task: an element of the list that the function returns."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> ElementResult:
        result = cls(Any)
        result._annotation = lambda: element_annotation(function)
        return result


def item_annotation(function: Callable[..., Any], *, context: bool) -> Any:
    """T, where the function takes `items: list[T]`; Any if it does not say. BadInput if it takes no list."""
    from daybreak.values.hints import Unresolved, annotation_text, parameters_of  # noqa: PLC0415

    parameters = parameters_of(function)[1 if context else 0 :]
    name = getattr(function, "__name__", "?")
    takes = f"batch task {name!r} takes one list of items: def {name}(items: list[T]) -> list[R | Exception]"
    if len(parameters) != 1 or parameters[0].kind not in {"POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD"}:
        raise BadInput(f"{takes}; after the context it has {len(parameters)} parameters, of which one must be the list")
    annotation = parameters[0].annotation
    if annotation is Any or isinstance(annotation, Unresolved):
        return Any
    origin, args = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if origin not in _LISTS or (origin is tuple and (len(args) != 2 or args[1] is not ...)):
        raise BadInput(f"{takes}; its parameter {parameters[0].name!r} is a {annotation_text(annotation)}")
    return args[0] if args else Any


def element_annotation(function: Callable[..., Any]) -> Any:
    """R, where the function returns `list[R | Exception]`; Any if it does not say."""
    from daybreak.values.hints import return_annotation  # noqa: PLC0415

    annotation = return_annotation(function)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin not in _LISTS or not args:
        return Any
    element = args[0]
    if typing.get_origin(element) in (typing.Union, types.UnionType):
        results = [one for one in typing.get_args(element) if not _is_exception(one)]
        return typing.Union[tuple(results)] if results else Any  # noqa: UP007 - made at run time
    return Any if _is_exception(element) else element


def _is_exception(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseException)

"""Codecs of classes with named fields: dataclasses, structs, named tuples, TypedDicts and pydantic models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from daybreak.core.errors import BadArguments
from daybreak.values.codec import Codec, InstanceCodec, written_if_possible
from daybreak.values.equality import difference
from daybreak.values.errors import DEPTH_LIMIT, Refusal, step, subclass_refusal, too_deep
from daybreak.values.lazy import once
from daybreak.values.tagged_json import check_text, escape_dict, from_tagged, split_class, to_tagged, untagged_dict

# The codecs of fields are made on first use, because a class may refer to itself.
Fields = Callable[[], Mapping[str, Codec]]


class FieldsCodec(Codec):
    """A class whose instances are written as objects with one entry per field."""

    def __init__(self, name: str, fields: Fields, required: Collection[str]) -> None:
        super().__init__(name)
        self._make_fields = fields
        self.required = required

    @once
    def fields(self) -> Mapping[str, Codec]:
        return self._make_fields()

    def inner(self) -> Iterable[Codec]:
        return self.fields.values()

    def write_fields(self, found: Mapping[str, Any], depth: int) -> object:
        if depth >= DEPTH_LIMIT:
            raise too_deep()
        written: dict[str, object] = {}
        for name, value in found.items():
            try:
                written[check_text(name)] = self.write_field(name, value, depth + 1)
            except Refusal as refusal:
                raise refusal.at(step(name)) from None
        return escape_dict(written)

    def write_field(self, name: str, value: Any, depth: int) -> object:
        return self.fields[name].write(value, depth)

    def read_fields(self, raw: Any) -> dict[str, Any]:
        """The decoded fields. Refuses an object with missing or unknown fields."""
        found = untagged_dict(split_class(raw)[1])
        if found is None:
            raise self.mismatch(from_tagged(raw))
        if missing := [name for name in self.required if name not in found]:
            raise Refusal(BadArguments, f"a {self.name} is missing {', '.join(missing)}")
        read: dict[str, Any] = {}
        for name, value in found.items():
            try:
                read[name] = self.read_field(name, value)
            except Refusal as refusal:
                raise refusal.at(step(name)) from None
        return read

    def read_field(self, name: str, raw: Any) -> Any:
        if (codec := self.fields.get(name)) is None:
            raise Refusal(
                BadArguments, f"a {self.name} has no {name!r}; its fields: {', '.join(self.fields) or 'none'}"
            )
        return codec.read(raw)


class RecordClassCodec(FieldsCodec):
    """A dataclass, a msgspec Struct or a NamedTuple of exactly this class: a subclass would lose what it adds."""

    safe = False
    is_class = True

    def __init__(self, name: str, kind: Any, fields: Fields, required: Collection[str]) -> None:
        super().__init__(name, fields, required)
        self.kinds = (kind,)
        self._kind = kind

    def write(self, value: Any, depth: int, /) -> object:
        if type(value) is not self._kind:
            raise subclass_refusal(value, self.name) if isinstance(value, self._kind) else self.mismatch(value)
        parts = {name: getattr(value, name, msgspec.UNSET) for name in self.fields}
        # Fields that msgspec marks as unset are left out; the comparison shows whether they are unset when read.
        return self.write_fields({name: part for name, part in parts.items() if part is not msgspec.UNSET}, depth)

    def read(self, raw: Any) -> Any:
        return build_instance(self.name, lambda: self._kind(**self.read_fields(raw)))


class TypedDictCodec(FieldsCodec):
    """A TypedDict."""

    kinds = (dict,)
    safe = False

    def write(self, value: Any, depth: int, /) -> object:
        if not isinstance(value, dict):
            raise self.mismatch(value)
        if missing := [name for name in self.required if name not in value]:
            raise Refusal(BadArguments, f"a {self.name} is missing {', '.join(missing)}")
        if unknown := [name for name in value if name not in self.fields]:
            raise Refusal(
                BadArguments, f"a {self.name} has no {unknown[0]!r}; its fields: {', '.join(self.fields) or 'none'}"
            )
        return self.write_fields(value, depth)

    def read(self, raw: Any) -> Any:
        return self.read_fields(raw)


class ModelCodec(FieldsCodec):
    """A pydantic model. Fields are written by their annotations; pydantic validates what is read."""

    safe = False
    is_class = True

    def __init__(self, name: str, kind: Any, fields: Fields) -> None:
        super().__init__(name, fields, ())
        self.kinds = (kind,)
        self._kind = kind

    def write(self, value: Any, depth: int, /) -> object:
        if type(value) is not self._kind:
            raise subclass_refusal(value, self.name) if isinstance(value, self._kind) else self.mismatch(value)
        held = {name: value.__dict__[name] for name in self.fields if self._is_written(value, name)}
        return self.write_fields({**held, **(value.__pydantic_extra__ or {})}, depth)

    def _is_written(self, value: Any, name: str) -> bool:
        """Whether a field must be written, so that `model_fields_set` is the same when it is read."""
        if name not in value.__dict__:
            return False
        if name in value.__pydantic_fields_set__:
            return True
        field = self._kind.model_fields[name]
        return field.default_factory is not None or difference(value.__dict__[name], field.default) is not None

    def unwritten(self) -> Mapping[str, object]:
        return {
            name: written_if_possible(field.default, self.fields[name].write)
            for name, field in self._kind.model_fields.items()
            if not field.is_required() and field.default_factory is None
        }

    def write_field(self, name: str, value: Any, depth: int) -> object:
        return self.fields[name].write(value, depth) if name in self.fields else to_tagged(value, depth)

    def read(self, raw: Any) -> Any:
        found = {self._key(name): value for name, value in self.read_fields(raw).items()}
        return build_instance(self.name, lambda: self._kind.model_validate(found))

    def read_field(self, name: str, raw: Any) -> Any:
        try:
            return self.fields[name].read(raw) if name in self.fields else from_tagged(raw)
        except Refusal:
            return from_tagged(raw)

    def _key(self, name: str) -> str:
        """The name under which the model accepts a field."""
        config = self._kind.model_config
        if name not in self.fields or config.get("populate_by_name") or config.get("validate_by_name"):
            return name
        field = self._kind.model_fields[name]
        alias = field.validation_alias or field.alias
        choices = getattr(alias, "choices", [alias])
        return next((choice for choice in choices if isinstance(choice, str)), name)


class PydanticCodec(InstanceCodec):
    """A class that only pydantic can write and read, such as an IP address or a URL."""

    safe = False
    is_class = True

    def __init__(self, name: str, kind: Any) -> None:
        super().__init__(name, kind)
        self.kinds = (kind,)

    @once
    def _adapter(self) -> Any:
        try:
            return sys.modules["pydantic"].TypeAdapter(self.kind)
        except Exception:  # noqa: BLE001 - pydantic does not support it either
            return None

    def write(self, value: Any, depth: int, /) -> object:
        if type(value) is not self.kind or self._adapter is None:
            return super().write(value, depth)
        return to_tagged(build_instance(self.name, lambda: self._adapter.dump_python(value, mode="json")), depth)

    def read(self, raw: Any) -> Any:
        if self._adapter is None:
            return super().read(raw)
        return build_instance(self.name, lambda: self._adapter.validate_python(from_tagged(raw)))


class RootModelCodec(ModelCodec):
    """A pydantic root model, written as its root value."""

    def write(self, value: Any, depth: int, /) -> object:
        if type(value) is not self._kind:
            raise subclass_refusal(value, self.name) if isinstance(value, self._kind) else self.mismatch(value)
        if depth >= DEPTH_LIMIT:
            raise too_deep()
        return self.write_field("root", value.root, depth + 1)

    def unwritten(self) -> Mapping[str, object]:
        return {}

    def read(self, raw: Any) -> Any:
        found = self.read_field("root", split_class(raw)[1])
        return build_instance(self.name, lambda: self._kind.model_validate(found))


def build_instance(name: str, build: Callable[[], Any]) -> Any:
    """Call a constructor of the user's. Whatever it raises becomes a refusal."""
    try:
        return build()
    except (Refusal, RecursionError):
        raise
    except Exception as error:  # noqa: BLE001
        message = f"cannot make a {name} from it: {type(error).__name__}: {_error_text(error)}"
    raise Refusal(BadArguments, message)


def _error_text(exc: Any) -> str:
    """The message of an exception in one line; pydantic's without its links."""
    if not hasattr(type(exc), "errors"):
        return " ".join(str(exc).split())
    return "; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in exc.errors()[:3])

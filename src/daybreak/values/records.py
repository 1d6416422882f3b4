"""How instances of classes with named fields are written and read: dataclasses, structs, named tuples, models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from daybreak.core.errors import BadArguments
from daybreak.values.codec import Codec, Instance
from daybreak.values.equality import difference
from daybreak.values.errors import DEPTH_LIMIT, Refusal, extended, step, too_deep
from daybreak.values.lazy import once
from daybreak.values.tagged_json import escaped, named_class, opened_dict, plain, rich, text

# Codecs of fields are made on first use: a class may hold itself.
Fields = Callable[[], Mapping[str, Codec]]


class Fielded(Codec):
    """What is written as an object with one entry per field."""

    def __init__(self, name: str, fields: Fields, needed: Collection[str]) -> None:
        super().__init__(name)
        self._make_fields = fields
        self._needed = needed

    @once
    def fields(self) -> Mapping[str, Codec]:
        return self._make_fields()

    def inner(self) -> Iterable[Codec]:
        return self.fields.values()

    def written(self, found: Mapping[str, Any], depth: int) -> object:
        if depth >= DEPTH_LIMIT:
            raise too_deep()
        written: dict[str, object] = {}
        for name, value in found.items():
            try:
                written[text(name)] = self.write_field(name, value, depth + 1)
            except Refusal as refusal:
                raise refusal.at(step(name)) from None
        return escaped(written)

    def write_field(self, name: str, value: Any, depth: int) -> object:
        return self.fields[name].write(value, depth)

    def entries(self, raw: Any) -> dict[str, Any]:
        """The fields as they were read, if these are the fields there are."""
        found = opened_dict(named_class(raw)[1])
        if found is None:
            raise self.unfit(rich(raw))
        if missing := [name for name in self._needed if name not in found]:
            raise Refusal(BadArguments, f"a {self.name} needs {', '.join(missing)}")
        read: dict[str, Any] = {}
        for name, value in found.items():
            try:
                read[name] = self.read_field(name, value)
            except Refusal as refusal:
                raise refusal.at(step(name)) from None
        return read

    def read_field(self, name: str, raw: Any) -> Any:
        if (codec := self.fields.get(name)) is None:
            raise Refusal(BadArguments, f"a {self.name} has no {name!r}; it has {', '.join(self.fields) or 'nothing'}")
        return codec.read(raw)


class Record(Fielded):
    """A dataclass, a msgspec Struct or a NamedTuple, of exactly this class: a subclass would lose what it adds."""

    safe = False
    is_class = True

    def __init__(self, name: str, kind: Any, fields: Fields, needed: Collection[str]) -> None:
        super().__init__(name, fields, needed)
        self.kinds = (kind,)
        self._kind = kind

    def write(self, value: Any, depth: int, /) -> object:
        if type(value) is not self._kind:
            raise extended(value, self.name) if isinstance(value, self._kind) else self.unfit(value)
        parts = {name: getattr(value, name, msgspec.UNSET) for name in self.fields}
        # What msgspec marks as unset is not there; whether its absence comes back, the comparison tells.
        return self.written({name: part for name, part in parts.items() if part is not msgspec.UNSET}, depth)

    def read(self, raw: Any) -> Any:
        return built(self.name, lambda: self._kind(**self.entries(raw)))


class Keyed(Fielded):
    """A TypedDict."""

    kinds = (dict,)
    safe = False

    def write(self, value: Any, depth: int, /) -> object:
        if not isinstance(value, dict):
            raise self.unfit(value)
        if missing := [name for name in self._needed if name not in value]:
            raise Refusal(BadArguments, f"a {self.name} needs {', '.join(missing)}")
        if unknown := [name for name in value if name not in self.fields]:
            raise Refusal(
                BadArguments, f"a {self.name} has no {unknown[0]!r}; it has {', '.join(self.fields) or 'nothing'}"
            )
        return self.written(value, depth)

    def read(self, raw: Any) -> Any:
        return self.entries(raw)


class Model(Fielded):
    """A pydantic model. Its fields are written by their annotations; what is read, pydantic validates."""

    safe = False
    is_class = True

    def __init__(self, name: str, kind: Any, fields: Fields) -> None:
        super().__init__(name, fields, ())
        self.kinds = (kind,)
        self._kind = kind

    def write(self, value: Any, depth: int, /) -> object:
        if type(value) is not self._kind:
            raise extended(value, self.name) if isinstance(value, self._kind) else self.unfit(value)
        held = {name: value.__dict__[name] for name in self.fields if self._is_told(value, name)}
        return self.written({**held, **(value.__pydantic_extra__ or {})}, depth)

    def _is_told(self, value: Any, name: str) -> bool:
        """Whether a field must be written: who asks a model which fields were set must get the same answer again."""
        if name not in value.__dict__:
            return False
        if name in value.__pydantic_fields_set__:
            return True
        field = self._kind.model_fields[name]
        return field.default_factory is not None or difference(value.__dict__[name], field.default) is not None

    def write_field(self, name: str, value: Any, depth: int) -> object:
        return self.fields[name].write(value, depth) if name in self.fields else plain(value, depth)

    def read(self, raw: Any) -> Any:
        found = {self._key(name): value for name, value in self.entries(raw).items()}
        return built(self.name, lambda: self._kind.model_validate(found))

    def read_field(self, name: str, raw: Any) -> Any:
        try:
            return self.fields[name].read(raw) if name in self.fields else rich(raw)
        except Refusal:
            return rich(raw)

    def _key(self, name: str) -> str:
        """Under which name the model takes a field."""
        config = self._kind.model_config
        if name not in self.fields or config.get("populate_by_name") or config.get("validate_by_name"):
            return name
        field = self._kind.model_fields[name]
        alias = field.validation_alias or field.alias
        choices = getattr(alias, "choices", [alias])
        return next((choice for choice in choices if isinstance(choice, str)), name)


class Adapted(Instance):
    """A class of which only pydantic knows how it is written, an address or a URL: as text, or whatever it chooses."""

    safe = False
    is_class = True

    def __init__(self, name: str, kind: Any) -> None:
        super().__init__(name, kind)
        self.kinds = (kind,)

    @once
    def _adapter(self) -> Any:
        try:
            return sys.modules["pydantic"].TypeAdapter(self.kind)
        except Exception:  # noqa: BLE001 - pydantic does not know it either
            return None

    def write(self, value: Any, depth: int, /) -> object:
        if type(value) is not self.kind or self._adapter is None:
            return super().write(value, depth)
        return plain(built(self.name, lambda: self._adapter.dump_python(value, mode="json")), depth)

    def read(self, raw: Any) -> Any:
        if self._adapter is None:
            return super().read(raw)
        return built(self.name, lambda: self._adapter.validate_python(rich(raw)))


class Root(Model):
    """A pydantic model of one unnamed value, which is written as that value."""

    def write(self, value: Any, depth: int, /) -> object:
        if type(value) is not self._kind:
            raise extended(value, self.name) if isinstance(value, self._kind) else self.unfit(value)
        if depth >= DEPTH_LIMIT:
            raise too_deep()
        return self.write_field("root", value.root, depth + 1)

    def read(self, raw: Any) -> Any:
        found = self.read_field("root", named_class(raw)[1])
        return built(self.name, lambda: self._kind.model_validate(found))


def built(name: str, build: Callable[[], Any]) -> Any:
    """What a class of the user's makes of its fields, whatever it raises."""
    try:
        return build()
    except (Refusal, RecursionError):
        raise
    except Exception as error:  # noqa: BLE001
        told = f"no {name} could be made of it: {type(error).__name__}: {_said(error)}"
    raise Refusal(BadArguments, told)


def _said(exc: Any) -> str:
    """One line of what an exception says; of pydantic's, without its links."""
    if not hasattr(type(exc), "errors"):
        return " ".join(str(exc).split())
    return "; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in exc.errors()[:3])

"""How one function's arguments are written and read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from daybreak.core.errors import BadArguments, TooLarge
from daybreak.values.errors import DEPTH_LIMIT, Refusal, short, step
from daybreak.values.lazy import once
from daybreak.values.tagged_json import TAG, escaped, opened_dict, plain, read_json, text, write_json

if TYPE_CHECKING:
    from daybreak.values.codec import Codec
    from daybreak.values.signature import Shape


class Arguments:
    """Binds as a call would, checks every argument by its annotation, and stores only those that were given.

    Annotations are looked at on first use, when all that they name has been imported. With `context`, the first
    parameter is not part of the arguments."""

    def __init__(self, function: Callable[..., Any], *, context: bool) -> None:
        self._function = function
        self._context = context
        self._name = getattr(function, "__name__", None) or type(function).__name__

    @once
    def _shape(self) -> Shape:
        # Imported when a task is first used: many programs import daybreak, and only look at jobs.
        from daybreak.values.hints import parameters_of  # noqa: PLC0415
        from daybreak.values.signature import shaped  # noqa: PLC0415

        return shaped(parameters_of(self._function)[1 if self._context else 0 :])

    # -- writing -------------------------------------------------------------------------------------------------------

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The arguments of a call. BadArguments, NotEncodable and TooLarge name the parameter that is to blame."""
        shape = self._shape
        if kwargs and shape.unnamed:
            self._refuse(shape.unnamed & kwargs.keys(), "by name, which can be given by position only")
        if not args:
            return self.encode_named(kwargs)
        named: dict[str, Any] = dict(zip(shape.positional, args))  # noqa: B905 - a third faster, in a hot place
        if len(args) > len(shape.positional):
            if shape.rest is None:
                takes = f"takes {len(shape.positional)} by position" if shape.positional else "takes none by position"
                raise BadArguments(f"{self._name}() {takes}, and got {len(args)}")
            named[shape.rest] = list(args[len(shape.positional) :])
        if kwargs:
            self._refuse(named.keys() & kwargs.keys(), "twice, by position and by name")
            named.update(kwargs)
        return self.encode_named(named)

    def encode_named(self, kwargs: Mapping[str, object]) -> bytes:
        """As `encode`, with every argument by its name: *args as a list, and what only a position can say, too."""
        shape = self._shape
        written: dict[str, object] = {}
        # In the order of the signature: the same arguments are the same content, however they were given.
        for name, write in shape.writers.items():
            if name in kwargs:
                try:
                    written[name] = write(kwargs[name], 1)
                except Refusal as refusal:
                    raise refusal.at(step(name)).named("args") from None
        if len(written) != len(kwargs):
            self._write_extra(kwargs, written)
        if not shape.needed <= written.keys():
            self._refuse_missing(written)
        return write_json(escaped(written))

    def _write_extra(self, kwargs: Mapping[str, object], written: dict[str, object]) -> None:
        extra = self._shape.extra
        for name in kwargs:
            if name in written:
                continue
            if extra is None:
                self._refuse_unknown(name)
            if not isinstance(name, str):
                raise BadArguments(f"{self._name}() was given {short(name)} as a parameter's name: names are texts")
            try:
                written[text(name)] = extra.checked(kwargs[name], 1)
            except Refusal as refusal:
                raise refusal.at(step(name)).named("args") from None

    # -- reading -------------------------------------------------------------------------------------------------------

    def decode(self, data: bytes) -> tuple[list[Any], dict[str, Any]]:
        """What to call the function with: by position what can be given no other way, the rest by name.

        BadArguments, naming the parameter, if what is stored does not fit the function as it is now."""
        found = self.decode_named(data)
        return (self._positions(found) if self._shape.unnamed else []), found

    def decode_named(self, data: bytes) -> dict[str, Any]:
        """The arguments that were given, each by the name of its parameter; BadArguments as `decode`."""
        shape = self._shape
        found, as_they_are = self._stored(data), shape.as_they_are
        for name, raw in found.items():
            if type(raw) is as_they_are.get(name):
                continue
            codec = shape.codecs.get(name, shape.extra)
            if codec is None:
                self._refuse_unknown(name)
            try:
                found[name] = codec.read(raw)
            except Refusal as refusal:
                raise BadArguments(str(refusal.at(step(name)).named("args"))) from None
            except RecursionError:
                raise BadArguments(f"args{step(name)}: nested deeper than {DEPTH_LIMIT} levels") from None
        if not shape.needed <= found.keys():
            self._refuse_missing(found)
        return found

    def _stored(self, data: bytes) -> dict[str, Any]:
        stored: dict[str, Any] | None
        try:
            stored = read_json(data)
            if type(stored) is not dict or TAG in stored:
                stored = opened_dict(stored)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Refusal):
            stored = None
        if stored is None:
            raise BadArguments(f"{self._name}(): what is stored is no object with an entry for each argument")
        return stored

    def _positions(self, found: dict[str, Any]) -> list[Any]:
        """Take out of `found` what must be given by position, with defaults where an earlier one was left out."""
        shape = self._shape
        rest = found.pop(shape.rest, []) if shape.rest is not None else []
        by_position = shape.positional if rest else [name for name in shape.positional if name in shape.unnamed]
        last = max((i for i, name in enumerate(by_position, 1) if rest or name in found), default=0)
        return [found.pop(name) if name in found else shape.defaults[name] for name in by_position[:last]] + rest

    # -- from elsewhere ------------------------------------------------------------------------------------------------

    def from_text(self, pairs: Mapping[str, str]) -> dict[str, object]:
        """What was typed as name=value, read by annotation; for `encode_named`."""
        return self._taken(pairs, lambda codec, given: codec.parse(given))

    def accept(self, named: Mapping[str, object]) -> dict[str, object]:
        """Values that are what the annotations say, or the plain form of it (a dict for a dataclass, a text for a
        date), as an upgrade of old arguments or JSON of others has it; for `encode_named`."""
        return self._taken(named, _accepted)

    def _taken(self, named: Mapping[str, Any], take: Callable[[Codec, Any], object]) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, value in named.items():
            codec = self._shape.codecs.get(name, self._shape.extra)
            if codec is None:
                self._refuse_unknown(name)
            try:
                found[name] = take(codec, value)
            except Refusal as refusal:
                raise refusal.at(step(name)).named("args") from None
        return found

    # -- refusing ------------------------------------------------------------------------------------------------------

    def _refuse(self, names: Iterable[str], how: str) -> None:
        for name in sorted(names):
            raise BadArguments(f"{self._name}() got {name!r} {how}")

    def _refuse_missing(self, found: Mapping[str, object]) -> NoReturn:
        missing = [name for name in self._shape.codecs if name in self._shape.needed and name not in found]
        raise BadArguments(f"{self._name}() needs {' and '.join(map(repr, missing))}")

    def _refuse_unknown(self, name: str) -> NoReturn:
        from difflib import get_close_matches  # noqa: PLC0415 - slow to import, and rarely needed

        known = list(self._shape.codecs)
        close = get_close_matches(str(name), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(map(repr, known)) or 'none'}"
        raise BadArguments(f"{self._name}() has no parameter {name!r}; {hint}")


def _accepted(codec: Codec, value: object) -> Any:
    try:
        codec.write(value, 1)
    except Refusal as refusal:
        if issubclass(refusal.error, TooLarge):
            raise
        return codec.read(plain(value, 1))
    return value

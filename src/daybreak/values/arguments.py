"""The arguments of a function, encoded by its annotations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from daybreak.core.errors import BadArguments, BadInput, DaybreakError
from daybreak.core.units import counted
from daybreak.values.canonical import canonical, has_secret
from daybreak.values.errors import DEPTH_LIMIT, Refusal, short_repr, step
from daybreak.values.file import File, collecting
from daybreak.values.lazy import once
from daybreak.values.tagged_json import TAG, check_text, escape_dict, read_json, untagged_dict, write_json

if TYPE_CHECKING:
    from daybreak.values.codec import Codec
    from daybreak.values.signature import Signature


class Arguments:
    """Binds arguments as a call does, checks each by its annotation, and stores only those that were passed.

    Annotations are read on first use, when all modules that they name are imported. With `context`, the first
    parameter is not part of the arguments."""

    def __init__(self, function: Callable[..., Any], *, context: bool) -> None:
        self._function = function
        self._context = context
        self._name = getattr(function, "__name__", None) or type(function).__name__

    @once
    def _signature(self) -> Signature:
        # Imported when a task is first used: many programs import daybreak only to look at jobs.
        from daybreak.values.hints import parameters_of  # noqa: PLC0415
        from daybreak.values.signature import signature_of  # noqa: PLC0415

        return signature_of(parameters_of(self._function)[1 if self._context else 0 :])

    def files(self) -> frozenset[str]:
        """The parameters that take a file, so that its path is given on the command line and not its text."""
        return frozenset(name for name, codec in self._signature.codecs.items() if File in codec.kinds)

    def describe(self) -> list[dict[str, Any]]:
        """The parameters for people: name, type, whether it must be given, and its default."""
        signature = self._signature
        return [
            {
                "name": name,
                "type": codec.name,
                "required": name in signature.required,
                "default": None if name in signature.required else short_repr(signature.defaults.get(name)),
            }
            for name, codec in signature.codecs.items()
        ]

    # -- writing -------------------------------------------------------------------------------------------------------

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The arguments of a call. BadArguments, NotEncodable and TooLarge name the parameter at fault."""
        signature = self._signature
        if kwargs and signature.positional_only:
            self._refuse(signature.positional_only & kwargs.keys(), "by name; it is positional-only")
        if not args:
            return self.encode_named(kwargs)
        named: dict[str, Any] = dict(zip(signature.positional, args))  # noqa: B905 - a third faster, in a hot place
        if len(args) > len(signature.positional):
            if signature.var_positional is None:
                takes = counted(len(signature.positional), "positional argument")
                raise BadArguments(f"{self._name}() takes {takes}, but got {len(args)}")
            named[signature.var_positional] = list(args[len(signature.positional) :])
        if kwargs:
            self._refuse(named.keys() & kwargs.keys(), "twice: by position and by name")
            named.update(kwargs)
        return self.encode_named(named)

    def encode_named(self, kwargs: Mapping[str, object]) -> bytes:
        """As `encode`, with every argument by its name, positional-only ones too, and *args as a list."""
        signature = self._signature
        written: dict[str, object] = {}
        # In the order of the signature: equal arguments are equal content, however they were passed.
        for name, write in signature.writers.items():
            if name in kwargs:
                try:
                    written[name] = write(kwargs[name], 1)
                except Refusal as refusal:
                    raise refusal.at(step(name)).as_error("args") from None
        if len(written) != len(kwargs):
            self._write_extra(kwargs, written)
        if not signature.required <= written.keys():
            self._refuse_missing(written)
        return write_json(escape_dict(written))

    def _write_extra(self, kwargs: Mapping[str, object], written: dict[str, object]) -> None:
        extra = self._signature.var_keyword
        for name in kwargs:
            if name in written:
                continue
            if extra is None:
                self._refuse_unknown(name)
            if not isinstance(name, str):
                raise BadArguments(f"{self._name}() got {short_repr(name)} as a parameter name; names are strings")
            try:
                written[check_text(name)] = extra.write_checked(kwargs[name], 1)
            except Refusal as refusal:
                raise refusal.at(step(name)).as_error("args") from None

    # -- reading -------------------------------------------------------------------------------------------------------

    def decode(self, data: bytes) -> tuple[list[Any], dict[str, Any]]:
        """The positional and keyword arguments to call the function with; all but positional-only ones by name.

        BadArguments names the parameter if the stored arguments do not fit the function's current signature."""
        found = self.decode_named(data)
        return (self._positions(found) if self._signature.positional_only else []), found

    def decode_named(self, data: bytes) -> dict[str, Any]:
        """The stored arguments by parameter name. Raises BadArguments as `decode` does."""
        signature = self._signature
        found, unchanged_types = self._read_object(data), signature.unchanged_types
        for name, raw in found.items():
            if type(raw) is unchanged_types.get(name):
                continue
            codec = signature.codecs.get(name, signature.var_keyword)
            if codec is None:
                self._refuse_unknown(name)
            try:
                found[name] = codec.read(raw)
            except Refusal as refusal:
                raise BadArguments(str(refusal.at(step(name)).as_error("args"))) from None
            except RecursionError:
                raise BadArguments(f"args{step(name)}: nested deeper than {DEPTH_LIMIT} levels") from None
        if not signature.required <= found.keys():
            self._refuse_missing(found)
        return found

    def _read_object(self, data: bytes) -> dict[str, Any]:
        stored: dict[str, Any] | None
        try:
            stored = read_json(data)
            if type(stored) is not dict or TAG in stored:
                stored = untagged_dict(stored)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Refusal):
            stored = None
        if stored is None:
            raise BadArguments(f"{self._name}(): the stored arguments are not a JSON object with an entry per argument")
        return stored

    def _positions(self, found: dict[str, Any]) -> list[Any]:
        """Remove from `found` the arguments to pass by position, with defaults where an earlier one was left out."""
        signature = self._signature
        rest = found.pop(signature.var_positional, []) if signature.var_positional is not None else []
        by_position = (
            signature.positional
            if rest
            else [name for name in signature.positional if name in signature.positional_only]
        )
        last = max((i for i, name in enumerate(by_position, 1) if rest or name in found), default=0)
        return [found.pop(name) if name in found else signature.defaults[name] for name in by_position[:last]] + rest

    # -- canonical form ------------------------------------------------------------------------------------------------

    def canonical(self, data: bytes, seal: bytes | None) -> dict[str, bytes]:
        """The canonical form of each stored argument, those that were left out included: they have their defaults. See
        `values.canonical`."""
        forms: dict[str, bytes] = {}
        for name, raw in self.with_defaults(data).items():
            unwritten = self._unwritten.get(name if name in self._signature.codecs else None)
            try:
                forms[name] = canonical(raw, seal) + (canonical(unwritten, seal) if unwritten else b"")
            except BadInput as error:
                raise type(error)(f"args{step(name)}: {error}") from None
        return forms

    def with_defaults(self, data: bytes) -> dict[str, Any]:
        """What is stored of each argument, and the defaults of those that were left out."""
        return {**self._encoded_defaults, **self._read_object(data)}

    @once
    def has_secret_defaults(self) -> bool:
        """Whether canonical forms need the key for secrets even if the stored arguments have none."""
        return has_secret(write_json([self._encoded_defaults, list(self._unwritten.values())]))

    @once
    def _unwritten(self) -> dict[str | None, list[object]]:
        """By argument, what decides its value beside what is stored of it; None stands for those in **kwargs."""
        from daybreak.values.codec import codecs_in  # noqa: PLC0415 - as above

        signature = self._signature
        codecs: list[tuple[str | None, Codec]] = [*signature.codecs.items()]
        if signature.var_keyword is not None:
            codecs.append((None, signature.var_keyword))
        found: dict[str | None, list[object]] = {}
        for name, codec in codecs:
            with collecting():
                parts = [[each.name, *each.unwritten().items()] for each in codecs_in(codec)]
            found[name] = [part for part in parts if len(part) > 1]
        return found

    @once
    def _encoded_defaults(self) -> dict[str, Any]:
        """The defaults as they would be stored. One that cannot be stored has a name of its own: it is equal to itself
        and to nothing that can be passed."""
        signature, found = self._signature, dict[str, Any]()
        for name, codec in signature.codecs.items():
            if name not in signature.defaults and name != signature.var_positional:
                continue  # it is required, or a key that a TypedDict may lack
            try:
                with collecting():
                    found[name] = [] if name == signature.var_positional else codec.write(signature.defaults[name], 1)
            except (Refusal, DaybreakError):
                found[name] = {TAG: ["default", name]}
        return found

    # -- converting ----------------------------------------------------------------------------------------------------

    def from_text(self, pairs: Mapping[str, str]) -> dict[str, object]:
        """Parse name=value pairs from the command line by annotation. The result is for `encode_named`."""
        return self._convert(pairs, lambda codec, text: codec.parse(text))

    def accept(self, named: Mapping[str, object]) -> dict[str, object]:
        """Convert values to the annotated types. A value may also be in its plain form (a dict for a dataclass, a
        string for a date), as in upgraded arguments or in JSON of other programs. The result is for `encode_named`."""
        return self._convert(named, lambda codec, value: codec.accept(value))

    def _convert(self, named: Mapping[str, Any], convert: Callable[[Codec, Any], object]) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, value in named.items():
            codec = self._signature.codecs.get(name, self._signature.var_keyword)
            if codec is None:
                self._refuse_unknown(name)
            try:
                found[name] = convert(codec, value)
            except Refusal as refusal:
                raise refusal.at(step(name)).as_error("args") from None
        return found

    # -- errors --------------------------------------------------------------------------------------------------------

    def _refuse(self, names: Iterable[str], how: str) -> None:
        for name in sorted(names):
            raise BadArguments(f"{self._name}() got {name!r} {how}")

    def _refuse_missing(self, found: Mapping[str, object]) -> NoReturn:
        missing = [name for name in self._signature.codecs if name in self._signature.required and name not in found]
        raise BadArguments(f"{self._name}() is missing {' and '.join(map(repr, missing))}")

    def _refuse_unknown(self, name: str) -> NoReturn:
        from difflib import get_close_matches  # noqa: PLC0415 - slow to import, and rarely needed

        known = list(self._signature.codecs)
        close = get_close_matches(str(name), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"its parameters: {', '.join(map(repr, known)) or 'none'}"
        raise BadArguments(f"{self._name}() has no parameter {name!r}; {hint}")

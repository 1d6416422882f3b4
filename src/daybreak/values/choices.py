"""Codecs of enums and literals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from daybreak.values.codec import Codec, written_if_possible
from daybreak.values.errors import Refusal, short_repr
from daybreak.values.tagged_json import from_tagged, split_class, to_tagged


class EnumCodec(Codec):
    """An enum, written by value; by name if its values are neither all strings nor all integers."""

    is_class = True

    def __init__(self, name: str, kind: Any) -> None:
        super().__init__(name)
        self.kinds = (kind,)
        self._kind = kind
        values = [member._value_ for member in kind.__members__.values()]
        self._by_value = any(all(type(value) is base for value in values) for base in (str, int))

    def write(self, value: Any, depth: int, /) -> object:
        if type(value) is not self._kind:
            raise self.mismatch(value)
        return to_tagged(value._value_ if self._by_value else value._name_, depth)

    def read(self, raw: Any) -> Any:
        raw = split_class(raw)[1]
        try:
            return self._kind(from_tagged(raw)) if self._by_value else self._kind[raw]
        except (ValueError, KeyError, TypeError):
            raise self.mismatch(from_tagged(raw), self._choices()) from None

    def unwritten(self) -> Mapping[str, object]:
        members = {} if self._by_value else self._kind.__members__
        return {name: written_if_possible(member._value_) for name, member in members.items()}

    def parse(self, text: str) -> Any:
        members = self._kind.__members__
        for name, member in members.items():
            if text == str(member._value_) or text.upper() == name.upper():
                return member
        raise self.mismatch(text, self._choices())

    def _choices(self) -> str:
        return choices_text(m._value_ if self._by_value else m._name_ for m in self._kind.__members__.values())


class LiteralCodec(Codec):
    """A Literal: one of several options, each with its own type."""

    def __init__(self, name: str, options: Sequence[tuple[Any, Codec]]) -> None:
        super().__init__(name)
        self.kinds = tuple({type(option) for option, _ in options})
        self._options = [(option, codec.write(option, 0), codec) for option, codec in options]

    def inner(self) -> Iterable[Codec]:
        return [codec for _, _, codec in self._options]

    def write(self, value: Any, _depth: int, /) -> object:
        for option, written, _ in self._options:
            if type(option) is type(value) and option == value:
                return written
        raise self._no_such_option(value)

    def read(self, raw: Any) -> Any:
        for option, written, _ in self._options:
            if type(written) is type(raw) and written == raw:
                return option
        raise self._no_such_option(from_tagged(raw))

    def parse(self, text: str) -> Any:
        for option, _, codec in self._options:
            with suppress(Refusal):
                if codec.parse(text) == option:
                    return option
        raise self._no_such_option(text)

    def _no_such_option(self, value: Any) -> Refusal:
        return self.mismatch(value, choices_text(option for option, _, _ in self._options))


def choices_text(options: Iterable[object]) -> str:
    texts = [short_repr(option) for option in options]
    if len(texts) <= 1:
        return f"; choose {''.join(texts)}"
    return f"; choose {', '.join(texts[:-1])} or {texts[-1]}"

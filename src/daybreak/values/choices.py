"""How enums and literals are written and read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from daybreak.values.codec import Codec
from daybreak.values.errors import Refusal, short
from daybreak.values.tagged_json import named_class, plain, rich


class Member(Codec):
    """An enum, by its value; by its name, if its values are neither all text nor all whole numbers."""

    is_class = True

    def __init__(self, name: str, kind: Any) -> None:
        super().__init__(name)
        self.kinds = (kind,)
        self._kind = kind
        values = [member._value_ for member in kind.__members__.values()]
        self._by_value = any(all(type(value) is base for value in values) for base in (str, int))

    def write(self, value: Any, depth: int, /) -> object:
        if type(value) is not self._kind:
            raise self.unfit(value)
        return plain(value._value_ if self._by_value else value._name_, depth)

    def read(self, raw: Any) -> Any:
        raw = named_class(raw)[1]
        try:
            return self._kind(rich(raw)) if self._by_value else self._kind[raw]
        except (ValueError, KeyError, TypeError):
            raise self.unfit(rich(raw), self._choices()) from None

    def parse(self, given: str) -> Any:
        members = self._kind.__members__
        for name, member in members.items():
            if given == str(member._value_) or given.upper() == name.upper():
                return member
        raise self.unfit(given, self._choices())

    def _choices(self) -> str:
        return chosen(m._value_ if self._by_value else m._name_ for m in self._kind.__members__.values())


class Choice(Codec):
    """A Literal: one of these, each of its own type."""

    def __init__(self, name: str, options: Sequence[tuple[Any, Codec]]) -> None:
        super().__init__(name)
        self.kinds = tuple({type(option) for option, _ in options})
        self._options = [(option, codec.write(option, 0), codec) for option, codec in options]

    def write(self, value: Any, _depth: int, /) -> object:
        for option, written, _ in self._options:
            if type(option) is type(value) and option == value:
                return written
        raise self._none_of_them(value)

    def read(self, raw: Any) -> Any:
        for option, written, _ in self._options:
            if type(written) is type(raw) and written == raw:
                return option
        raise self._none_of_them(rich(raw))

    def parse(self, given: str) -> Any:
        for option, _, codec in self._options:
            with suppress(Refusal):
                if codec.parse(given) == option:
                    return option
        raise self._none_of_them(given)

    def _none_of_them(self, value: Any) -> Refusal:
        return self.unfit(value, chosen(option for option, _, _ in self._options))


def chosen(options: Iterable[object]) -> str:
    told = [short(option) for option in options]
    return f": choose {', '.join(told[:-1])} or {told[-1]}" if len(told) > 1 else f": choose {''.join(told)}"

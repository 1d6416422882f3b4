"""How the history of a job is kept: one line for each event."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Protocol

from daybreak.core.events import (
    FOLD_FROM,
    KEPT_UNFOLDED,
    Event,
    decode_lines,
    encode,
    last_holder,
    last_holder_in,
    last_time_in,
    shorten_history,
)


class HistoryFormat(Protocol):
    """Writes and reads histories. Only the store that keeps them knows their type; None is an empty one."""

    def write(self, event: Event) -> Any:
        """The line of one event."""
        ...

    def joined(self, history: Any, line: Any) -> Any:
        """A history with one more line."""
        ...

    def shorten(self, first: Event, history: Any) -> Any:
        """A history with its older events folded. `first` is the event that is not stored with it."""
        ...

    def whole(self, first: Event, history: Any) -> list[Event]:
        """All events. A history that begins with the first event, as that of an adopted job, has it only once."""
        ...

    def last_time(self, history: Any) -> datetime | None:
        """The time of the latest event; None if none is stored."""
        ...

    def last_holder(self, history: Any) -> str | None:
        """The worker of the latest attempt; None if the job was never started."""
        ...


def may_shorten(n: int) -> bool:
    """Whether a history is shortened when its event with this number is added."""
    return n >= FOLD_FROM and n % KEPT_UNFOLDED == 0


class JsonLines:
    """Histories as bytes: one JSON object a line."""

    def write(self, event: Event) -> bytes:
        return encode(event)

    def joined(self, history: bytes | None, line: bytes) -> bytes:
        return line if history is None else history + b"\n" + line

    def shorten(self, first: Event, history: bytes) -> bytes:
        is_stored = decode_lines(history.partition(b"\n")[0])[0].n == 1
        kept = shorten_history(self.whole(first, history))[0 if is_stored else 1 :]
        return b"\n".join(encode(event) for event in kept)

    def whole(self, first: Event, history: bytes | None) -> list[Event]:
        later = decode_lines(history) if history else []
        return later if later and later[0].n == 1 else [first, *later]

    def last_time(self, history: bytes | None) -> datetime | None:
        return last_time_in(history)

    def last_holder(self, history: bytes | None) -> str | None:
        return last_holder_in(history or b"")


class PlainEvents:
    """Histories as tuples of events, for stores that keep them in memory."""

    def write(self, event: Event) -> Event:
        return event

    def joined(self, history: tuple[Event, ...] | None, line: Event) -> tuple[Event, ...]:
        return (*(history or ()), line)

    def shorten(self, first: Event, history: tuple[Event, ...]) -> tuple[Event, ...]:
        kept = shorten_history(self.whole(first, history))
        return tuple(kept[0 if history[0].n == 1 else 1 :])

    def whole(self, first: Event, history: tuple[Event, ...] | None) -> list[Event]:
        later = list(history or ())
        return later if later and later[0].n == 1 else [first, *later]

    def last_time(self, history: tuple[Event, ...] | None) -> datetime | None:
        return history[-1].at if history else None

    def last_holder(self, history: tuple[Event, ...] | None) -> str | None:
        return last_holder(history or ())


JSON_LINES: Final = JsonLines()
PLAIN_EVENTS: Final = PlainEvents()

"""The server's time as it looks from here: what it is now at the earliest, and when it was seen to jump."""

from __future__ import annotations

from typing import Final

from daybreak.stores.steady_clock import SteadyClock
from daybreak.system.ports import World

HOW_LATE = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
READ_EVERY: Final = 10_000_000  # microseconds after which the offset is read again
TESTIFY_EVERY: Final = 10_000_000


class ServerClock(SteadyClock):
    """Answers tell the server's time alone. The offset is read at times; a process that knows an old one sees the jump
    for which it was changed by itself, unless it opened the store in between."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.is_shared = False  # whether there is a schema yet from which the offset can be read
        self._read_at: int | None = None
        self._testified_at: int | None = None

    def must_be_read(self) -> bool:
        """Whether the offset is to be read before anything is asked: a jump was seen, or it was read long ago."""
        if not self.is_shared:
            return False
        return self.jump is not None or self._read_at is None or self.steady() - self._read_at > READ_EVERY

    def was_read(self) -> None:
        self._read_at = self.steady()

    def may_testify(self) -> bool:
        """Whether it is time to tell others since when this process has seen the clock run evenly."""
        if self.jump is not None or self.even_since() is None:
            return False
        now, before = self.steady(), self._testified_at
        if before is not None and now - before < TESTIFY_EVERY:
            return False
        self._testified_at = now
        return True

    def hands(self, now: int | None) -> tuple[int, int | None]:
        """The offset, and the steady time that the store should have now; for a time that is given there is neither."""
        return (self.offset, self.about()) if now is None else (0, None)

"""The server's clock as this process sees it, and when its offset must be read again."""

from __future__ import annotations

from typing import Final

from daybreak.stores.steady_clock import SteadyClock
from daybreak.system.ports import World

SERVER_TIME = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
READ_EVERY: Final = 10_000_000  # microseconds after which the offset is read again
REPORT_EVERY: Final = 10_000_000


class ServerClock(SteadyClock):
    """Answers contain the server's time but not the offset, which is read from time to time. A process with an old
    offset sees the jump that changed it by itself, unless it opened the store after the jump."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.is_shared = False  # whether the schema exists, so that the offset can be read from it
        self._read_at: int | None = None
        self._reported_at: int | None = None

    def must_be_read(self) -> bool:
        """Whether the next call must read the offset first: a jump was seen, or the last read is too long ago."""
        if not self.is_shared:
            return False
        return self.jump is not None or self._read_at is None or self.steady() - self._read_at > READ_EVERY

    def was_read(self) -> None:
        self._read_at = self.steady()

    def must_report_even(self) -> bool:
        """Whether it is time to report since when this process has seen the clock run evenly."""
        if self.jump is not None or self.even_since() is None:
            return False
        now, before = self.steady(), self._reported_at
        if before is not None and now - before < REPORT_EVERY:
            return False
        self._reported_at = now
        return True

    def clock_params(self, now: int | None) -> tuple[int, int | None]:
        """The offset, and the steady time expected now; neither exists if the caller passes `now` in."""
        return (self.offset, self.about()) if now is None else (0, None)

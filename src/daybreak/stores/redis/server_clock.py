"""The server's clock as this process sees it: what it showed last, and whether it jumped."""

from __future__ import annotations

from daybreak.stores.steady_clock import Jump, SteadyClock


class ServerClock(SteadyClock):
    """Each reply of a script begins with the server's time and, where it is not 0, the offset of the store."""

    def note_reply(self, stamp: bytes, sent_at: int) -> None:
        """A reply came: the server read its clock between `sent_at` and now."""
        if stamp.isdigit():
            self.note(int(stamp), sent_at, 0)
        else:
            wall, _, offset = stamp.partition(b":")
            self.note(int(wall), sent_at, int(offset))

    def watched_for(self, watched: int) -> int:
        """For how long this process has watched, but not longer than the server's clock has run without a jump."""
        even_for = self.even_for()
        return watched if even_for is None else min(watched, even_for)


def correction_args(jump: Jump) -> tuple[int, int, int, int]:
    """The arguments of correct.lua."""
    return jump.offset, jump.corrected, jump.since, jump.seen

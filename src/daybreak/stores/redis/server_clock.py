"""The server's clock, as seen from here: what it showed last, and whether it jumped."""

from __future__ import annotations

from daybreak.stores.steady_clock import Jump, SteadyClock


class ServerClock(SteadyClock):
    """Each reply of a script begins with the server's time and, where it is not 0, the offset of the store."""

    def hear(self, stamp: bytes, sent: int) -> None:
        """A reply came: the server read its clock between `sent` and now."""
        if stamp.isdigit():
            self.note(int(stamp), sent, 0)
        else:
            wall, _, offset = stamp.partition(b":")
            self.note(int(wall), sent, int(offset))

    def asked_at(self) -> int | None:
        """The store's steady time of this moment, or a little earlier; never later."""
        return self.at_the_earliest()

    def watched_for(self, said: int) -> int:
        """For how long we had unbroken contact with a clock that ran evenly."""
        even_for = self.even_for()
        return said if even_for is None else min(said, even_for)


def correction(jump: Jump) -> tuple[int, int, int, int]:
    """The arguments of correct.lua."""
    return jump.offset, jump.corrected, jump.since, jump.seen

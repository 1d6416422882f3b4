"""The server's clock, as seen from here: what it showed last, and whether it jumped."""

from __future__ import annotations

from daybreak.world import World

JUMP = 1_000_000  # microseconds beyond the round trip


class Hands:
    """A server offers wall time alone. Each answer is compared with our own steady clock."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._last: tuple[int, int, int] | None = None  # the server's time, and when it was asked and answered here
        self._jumped_at: int | None = None

    def steady(self) -> int:
        return self._world.steady()

    def note(self, server: int, sent: int) -> None:
        """An answer came: the server read its clock between `sent` and now."""
        received = self._world.steady()
        if self._last is not None:
            before, sent_before, received_before = self._last
            passed = server - before
            if not sent - received_before - JUMP <= passed <= received - sent_before + JUMP:
                self._jumped_at = received
        self._last = (server, sent, received)

    def asked_at(self) -> int | None:
        """The server's time of this moment, or a little earlier; never later."""
        if self._last is None:
            return None
        server, _, received = self._last
        return server + self._world.steady() - received

    def watched_for(self, said: int) -> int:
        """For how long we had unbroken contact with a clock that ran evenly."""
        if self._jumped_at is None:
            return said
        return min(said, self._world.steady() - self._jumped_at)

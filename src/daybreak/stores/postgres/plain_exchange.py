"""One exchange as a single call of the server's function `exchange`, whoever sends it: a thread, or the event loop."""

from __future__ import annotations

from typing import Any

from daybreak.store.protocol import Exchange, Exchanged
from daybreak.stores.postgres import plain_path
from daybreak.stores.postgres.clock import ServerClock
from daybreak.stores.postgres.commit_listener import CommitListener
from daybreak.stores.postgres.lanes import Lanes


class PlainExchange:
    """The parameters of the call, and what follows from its reply. The sender takes `params`, hands the reply to
    `publish`, even if its caller is gone, and then to `receive`."""

    def __init__(
        self,
        request: Exchange,
        now: int | None,
        clock: ServerClock,
        lanes: Lanes,
        hints: plain_path.ResourceHints,
        listener: CommitListener,
    ) -> None:
        self._request = request
        self._now = now
        self._clock = clock
        self._lanes = lanes
        self._hints = hints
        self._listener = listener
        self._rows: list[Any] = []
        self._offset = self._sent_at = 0
        self.locks_resources = hints.use_resources(request)

    def params(self) -> tuple[Any, ...]:
        """The parameters of the call that is sent now."""
        self._sent_at, clock_params = self._clock.steady(), self._clock.clock_params(self._now)
        self._offset = clock_params[0]
        return plain_path.exchange_params(self._request, self._now, clock_params, lock_resources=self.locks_resources)

    def publish(self, rows: list[Any]) -> bool:
        """Tell who waits for what the call has changed. Returns whether it has changed anything."""
        if rows[0][0] != plain_path.DONE or not (topics := plain_path.changed_topics(self._request, rows)):
            return False
        self._listener.on_commit(topics, deleted_rows=len(rows) - 1)
        return True

    def receive(self, rows: list[Any]) -> bool:
        """Keep the reply, and what it says of the server's clock and of resources. False: the call has changed nothing,
        since the request is not plain, or must be sent again with the resource lock (`locks_resources`)."""
        status = rows[0][0]
        if self._now is None:
            self._clock.note(rows[0][1] + self._offset, self._sent_at)
        if status == plain_path.DONE:
            if self.locks_resources:
                self._hints.note(self._request, use_resources=bool(rows[0][4]))
            self._rows = rows
            return True
        self.locks_resources = status == plain_path.NEEDS_RESOURCES and not self.locks_resources
        if self.locks_resources:
            self._hints.note(self._request, use_resources=True)
        return False

    @property
    def knows_lanes(self) -> bool:
        """Whether the lanes of all jobs in the reply are known. If not, load them before `answer`."""
        return plain_path.knows_lanes(self._rows, self._lanes)

    def answer(self) -> Exchanged:
        """The answer to the request."""
        return plain_path.to_exchanged(self._request, self._rows, self._lanes, self._offset)

"""How far each partition may be committed: a commit covers every earlier message, so it waits for the slowest one."""

from __future__ import annotations


class Offsets:
    """The messages of each partition that are being worked on."""

    def __init__(self) -> None:
        self._open: dict[int, dict[int, None]] = {}  # by partition, in the order of arrival
        self._next: dict[int, int] = {}

    def received(self, partition: int, offset: int) -> None:
        """A message was received. One that comes again, and what follows it, counts from there."""
        self._open.setdefault(partition, {})[offset] = None
        self._next[partition] = max(self._next.get(partition, 0), offset + 1)

    def done(self, receipts: list[tuple[int, int]]) -> dict[int, int]:
        """These messages are done. The offsets to commit, by partition: the first message that is not done."""
        touched: dict[int, int] = {}
        for partition, offset in receipts:
            if self._open.get(partition, {}).pop(offset, self) is None:
                touched[partition] = 0
        return {partition: min(self._open[partition], default=self._next[partition]) for partition in touched}

    def forget(self, partition: int) -> None:
        """The partition belongs to another process now."""
        self._open.pop(partition, None)
        self._next.pop(partition, None)

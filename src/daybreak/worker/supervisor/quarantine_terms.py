"""Which job of a worker is on trial: the one that is to blame if the whole worker dies now."""

from __future__ import annotations

from typing import Final

from daybreak.core.model import Lease

SUSPECTED_AFTER: Final = 2  # deaths; the first one is usually nobody's fault: a deploy, a power cut, a spot instance
TRIED_AFTER: Final = 3  # deaths, or fewer where the job allows fewer: worker after worker died with it
FIRST: Final = 1.0
LONGER: Final = 4
FOR_EVER: Final = float("inf")


def lasts(lease: Lease) -> float:
    """Seconds for which this job is on trial; none if it need not be. The time grows with each death, so that a job
    that kills its worker after minutes is on trial, in the end, when it does so."""
    tried_after = min(max(lease.spec.options.deaths, 1), TRIED_AFTER)
    return 0.0 if lease.lost < tried_after else FIRST * float(LONGER ** min(lease.lost - tried_after, 10))


class QuarantineTerms:
    """At most one job at a time in all pools of a worker, which share `on`. A job that has survived its time runs on,
    and the next may begin beside it."""

    def __init__(self, on: dict[int, float]) -> None:
        self._on = on
        self._mine: set[int] = set()

    @property
    def is_free(self) -> bool:
        return not self._on

    def __contains__(self, seq: int) -> bool:
        return seq in self._mine

    def reserve(self, seq: int) -> None:
        """It begins as soon as there is a child for it."""
        self._on[seq] = FOR_EVER
        self._mine.add(seq)

    def begin(self, seq: int, until: float) -> None:
        self._on[seq] = until
        self._mine.add(seq)

    def end(self, seq: int) -> None:
        if seq in self._mine:
            self._mine.discard(seq)
            self._on.pop(seq, None)

    def survived(self, now: float) -> list[int]:
        """Those who have lived through their time: from now on they are not on trial."""
        through = [seq for seq in self._mine if now >= self._on[seq]]
        for seq in through:
            self.end(seq)
        return through

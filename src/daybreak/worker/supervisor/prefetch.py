"""Work fetched a moment before a slot is free for it, where the running jobs are known to end soon."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from daybreak.core.model import Lease

LONG: Final = 0.01  # seconds; shorter jobs are given to children ahead of time anyway
STEADY: Final = 0.005  # how far durations may scatter and still be foreseen
SEEN: Final = 5  # of which one may stand out
LATE: Final = 0.02  # a job so late is no longer expected
KEPT_FOR: Final = 0.1  # spares for which no slot came free go back


def may_begin(lease: Lease) -> bool:
    """Whether it may run before the store knows that it has begun. One that was claimed ahead and kills its worker
    before its mark is written comes back uncharged. It may do so once: one that came back before waits for it."""
    return lease.begun or lease.fence - lease.spec.fence == lease.attempt


class DurationForecast:
    """How long jobs of each task take, where that is always about the same. The latest few tell: when jobs become
    longer or shorter that is known within one round of them, and one that stands out deceives nobody."""

    def __init__(self) -> None:
        self._latest: dict[str, deque[float]] = {}

    def __len__(self) -> int:
        """How many tasks it knows something of."""
        return len(self._latest)

    def learn(self, task: str, seconds: float) -> None:
        latest = self._latest.get(task)
        if latest is None:
            latest = self._latest[task] = deque(maxlen=SEEN)
        latest.append(seconds)

    def ends_in(self, begun: Mapping[int, float], tasks: Mapping[int, str], now: float) -> list[float]:
        """In how many seconds each of these should end; nothing is said of those that cannot be foreseen."""
        return [
            left
            for seq, since in begun.items()
            if (lasts := self._lasts(tasks.get(seq, ""))) is not None and (left := since + lasts - now) > -LATE
        ]

    def _lasts(self, task: str) -> float | None:
        latest = sorted(self._latest.get(task, ()))
        if len(latest) < SEEN or (middle := latest[SEEN // 2]) < LONG:
            return None
        return middle if sum(abs(one - middle) <= STEADY for one in latest) >= SEEN - 1 else None


class PrefetchedLeases:
    """Leases in hand for which no slot is free yet, the most urgent first."""

    def __init__(self) -> None:
        self._leases: list[tuple[Lease, float]] = []

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def leases(self) -> list[Lease]:
        return [lease for lease, _ in self._leases]

    def add(self, leases: Iterable[Lease], now: float) -> None:
        self._leases += [(lease, now) for lease in leases]
        self._leases.sort(key=lambda spare: spare[0].priority)

    def take(self, n: int) -> list[Lease]:
        """Up to so many of those that may begin."""
        taken = [lease for lease, _ in self._leases if may_begin(lease)][:n]
        seqs = {lease.seq for lease in taken}
        self._leases = [one for one in self._leases if one[0].seq not in seqs]
        return taken

    def clear(self) -> list[Lease]:
        leases, self._leases = self.leases, []
        return leases

    def has_begun(self, marked: Lease) -> bool:
        """The store knows that it begins. Whether it is here."""
        for at, (lease, since) in enumerate(self._leases):
            if (lease.seq, lease.fence) == (marked.seq, marked.fence):
                self._leases[at] = (replace(lease, begun=True), since)
                return True
        return False

    def drop(self, lost: Lease) -> bool:
        """Whether it was here."""
        before = len(self._leases)
        self._leases = [one for one in self._leases if (one[0].seq, one[0].fence) != (lost.seq, lost.fence)]
        return len(self._leases) < before

    def kept_too_long(self, now: float) -> list[Lease]:
        late = [lease for lease, since in self._leases if now - since > KEPT_FOR]
        self._leases = [(lease, since) for lease, since in self._leases if now - since <= KEPT_FOR]
        return late

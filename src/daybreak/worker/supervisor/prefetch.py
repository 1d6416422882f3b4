"""Leases that are claimed shortly before a slot becomes free, where the running jobs are expected to end soon."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from daybreak.core.model import Lease

MIN_DURATION: Final = 0.01  # seconds; children get shorter jobs ahead of time anyway
MAX_DEVIATION: Final = 0.005  # seconds by which durations may differ and still be predictable
SAMPLES: Final = 5  # of which one may be an outlier
MAX_LATENESS: Final = 0.02  # seconds after its predicted end at which the prediction for a job is dropped
MAX_WAIT: Final = 0.1  # seconds after which a prefetched lease without a free slot goes back to the store


def may_start_unmarked(lease: Lease) -> bool:
    """Whether a job may start before the store knows that it has started.

    A job that was claimed ahead of time and kills its worker before its mark is written comes back uncharged. That may
    happen only once: a job that came back before waits for its mark."""
    return lease.begun or lease.fence == lease.attempt


class DurationForecast:
    """Predicts the duration of jobs of tasks that always take about the same time.

    Only the latest few durations count, so a change is known after a few jobs, and one outlier does not matter."""

    def __init__(self) -> None:
        self._latest: dict[str, deque[float]] = {}

    def __len__(self) -> int:
        """The number of tasks with recorded durations."""
        return len(self._latest)

    def record(self, task: str, seconds: float) -> None:
        latest = self._latest.get(task)
        if latest is None:
            latest = self._latest[task] = deque(maxlen=SAMPLES)
        latest.append(seconds)

    def ends_in(self, running: Mapping[int, float], tasks: Mapping[int, str], now: float) -> list[float]:
        """In how many seconds each of these jobs should end; without those that cannot be predicted."""
        ends = []
        for seq, since in running.items():
            duration = self._duration(tasks.get(seq, ""))
            if duration is not None:
                left = since + duration - now
                if left > -MAX_LATENESS:
                    ends.append(left)
        return ends

    def _duration(self, task: str) -> float | None:
        latest = sorted(self._latest.get(task, ()))
        if len(latest) < SAMPLES:
            return None
        median = latest[SAMPLES // 2]
        if median < MIN_DURATION:
            return None
        if sum(abs(seconds - median) <= MAX_DEVIATION for seconds in latest) < SAMPLES - 1:
            return None
        return median


class PrefetchedLeases:
    """Claimed leases that wait for a free slot, the most urgent first."""

    def __init__(self) -> None:
        self._leases: list[tuple[Lease, float]] = []  # each with the time at which it was added

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def leases(self) -> list[Lease]:
        return [lease for lease, _ in self._leases]

    def add(self, leases: Iterable[Lease], now: float) -> None:
        self._leases += [(lease, now) for lease in leases]
        self._leases.sort(key=lambda entry: entry[0].priority)

    def take(self, n: int) -> list[Lease]:
        """Remove and return up to `n` leases whose jobs may start."""
        taken = [lease for lease, _ in self._leases if may_start_unmarked(lease)][:n]
        seqs = {lease.seq for lease in taken}
        self._leases = [entry for entry in self._leases if entry[0].seq not in seqs]
        return taken

    def clear(self) -> list[Lease]:
        leases, self._leases = self.leases, []
        return leases

    def set_started(self, marked: Lease) -> bool:
        """Note that the store knows that this job starts. False if the lease is not here."""
        for index, (lease, since) in enumerate(self._leases):
            if (lease.seq, lease.fence) == (marked.seq, marked.fence):
                self._leases[index] = (replace(lease, begun=True), since)
                return True
        return False

    def drop(self, lost: Lease) -> bool:
        """Remove this lease. False if it is not here."""
        before = len(self._leases)
        self._leases = [entry for entry in self._leases if (entry[0].seq, entry[0].fence) != (lost.seq, lost.fence)]
        return len(self._leases) < before

    def take_overdue(self, now: float) -> list[Lease]:
        """Remove and return the leases that have waited for longer than `MAX_WAIT`."""
        overdue = [lease for lease, since in self._leases if now - since > MAX_WAIT]
        self._leases = [(lease, since) for lease, since in self._leases if now - since <= MAX_WAIT]
        return overdue

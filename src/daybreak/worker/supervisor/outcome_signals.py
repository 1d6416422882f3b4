"""What ended attempts say about the resources that they used, each attempt counted once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from daybreak.core.model import Ending, Lease
from daybreak.policy.breaker import Signal, signal_of

MIN_REMEMBERED: Final = 10_000


class ResourceSignal(NamedTuple):
    """An attempt and what it says about the resources of its job, or about its task if the job needs no resource."""

    lease: Lease
    signal: Signal


class OutcomeSignals:
    """Turns outcomes into signals for breakers and health. An exchange may be repeated, so each lease counts once."""

    def __init__(self) -> None:
        self._reported = ReportedLeases()

    def collect(self, ended: Sequence[tuple[Lease, Ending]]) -> list[ResourceSignal]:
        """The signals of attempts that were not collected before."""
        signals = []
        for lease, outcome in ended:
            options = lease.spec.options
            if not options.resources and options.retry.strategy != "adaptive":
                continue
            if lease in self._reported or lease.group not in (None, lease.seq):
                continue  # a call used its resources once: its first job, which held the slots, speaks for it
            signal = signal_of(lease, outcome)
            if signal is not None:
                self._reported.add(lease)
                signals.append(ResourceSignal(lease, signal))
        return signals


class ReportedLeases:
    """Remembers at least the latest `MIN_REMEMBERED` leases, in two halves: when the newer half is full, it becomes the
    older one, and the leases of the older one are forgotten."""

    def __init__(self) -> None:
        self._newer: set[tuple[int, int]] = set()
        self._older: set[tuple[int, int]] = set()

    def __contains__(self, lease: Lease) -> bool:
        key = (lease.seq, lease.fence)
        return key in self._newer or key in self._older

    def add(self, lease: Lease) -> None:
        if len(self._newer) >= MIN_REMEMBERED:
            self._older, self._newer = self._newer, set()
        self._newer.add((lease.seq, lease.fence))

"""The circuit breaker of a resource.

closed   counts consecutive transient failures, and forgets them after a while if told to; at the limit it opens
open     no job starts for `open_for`; then probes may start, and their outcomes close it or keep it open
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from daybreak.core.model import NO_GATE, Breaker, Detached, Done, Ending, Failed, Gate, Lease, TimedOut
from daybreak.policy.retry import classify


class Signal(NamedTuple):
    """What one attempt tells about a resource that it used."""

    is_good: bool
    started_at: datetime


def signal_of(lease: Lease, outcome: Ending) -> Signal | None:
    """The signal of an ended attempt; None if it tells nothing about the resource: a wrong argument, a cancelled job or
    a dead worker are not the resource's fault. Work that goes on elsewhere was begun well, as far as its worker saw."""
    match outcome:
        case Done() | Detached():
            return Signal(True, lease.started_at)
        case TimedOut():
            return Signal(False, lease.started_at)
        case Failed(failure) if classify(failure, lease.spec.options.retry) == "transient":
            return Signal(False, lease.started_at)
        case _:
            return None


def next_gate(gate: Gate, breaker: Breaker, signals: Iterable[Signal], now: datetime) -> Gate:
    """The state of the breaker after these signals, in order."""
    for signal in signals:
        if gate.state == "closed":
            gate = _after_signal_while_closed(gate, breaker, now, is_good=signal.is_good)
        elif _is_probe(signal, gate, breaker):
            gate = _after_probe(gate, breaker, now, is_good=signal.is_good)
    return gate


def _after_signal_while_closed(gate: Gate, breaker: Breaker, now: datetime, *, is_good: bool) -> Gate:
    if is_good:
        return Gate(opened=gate.opened) if gate.opened else NO_GATE
    failures = 1 if _is_forgotten(gate, breaker, now) else gate.failures + 1
    if failures < breaker.failures:
        failed_at = None if breaker.forget_after is None else now
        return Gate(failures=failures, opened=gate.opened, failed_at=failed_at)
    return _reopened(gate, breaker, failures, now)


def _is_forgotten(gate: Gate, breaker: Breaker, now: datetime) -> bool:
    """Whether the failures that were counted are too old to count."""
    if breaker.forget_after is None or gate.failed_at is None:
        return False
    return now - gate.failed_at > breaker.forget_after


def _after_probe(gate: Gate, breaker: Breaker, now: datetime, *, is_good: bool) -> Gate:
    if not is_good:
        return _reopened(gate, breaker, gate.failures + 1, now)
    successes = gate.successes + 1
    if successes >= breaker.successes:
        return Gate(opened=gate.opened)
    return Gate(
        state="open", probes=breaker.probes, failures=gate.failures, successes=successes, opened=gate.opened,
        opened_at=gate.opened_at, probing=gate.probing,
    )  # fmt: skip


def gate_with_probe(gate: Gate, breaker: Breaker, started_at: datetime) -> Gate:
    """The state of the breaker after an attempt that needs its resource started: the same, unless the attempt is the
    first probe since the breaker opened."""
    if gate.state == "closed" or gate.probing or not _is_probe(Signal(True, started_at), gate, breaker):
        return gate
    # The time for which the gate was shut is over; if it were written again, it would count from now.
    return replace(gate, shut_for=timedelta(), probing=True)


def _reopened(gate: Gate, breaker: Breaker, failures: int, now: datetime) -> Gate:
    return Gate(
        state="open", shut_for=breaker.open_for, probes=breaker.probes, failures=failures, opened=gate.opened + 1,
        opened_at=now,
    )  # fmt: skip


def _is_probe(signal: Signal, gate: Gate, breaker: Breaker) -> bool:
    """Whether the attempt started as a probe. An attempt that was already running when the breaker opened tells nothing
    new. The bound is half of `open_for`, because the clocks may differ; no attempt starts within `open_for`."""
    return gate.opened_at is None or signal.started_at >= gate.opened_at + breaker.open_for / 2

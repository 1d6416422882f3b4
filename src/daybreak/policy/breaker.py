"""When a failing resource is left alone, and when it is trusted again.

closed   counts transient failures in a row; at the limit it opens
open     nothing starts for a while; then some may try, and what becomes of them decides
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from daybreak.core.model import NO_GATE, Breaker, Done, Failed, Gate, Lease, Outcome, TimedOut
from daybreak.policy.retry import classify


class Signal(NamedTuple):
    """What one attempt says of a resource that it used."""

    is_good: bool
    started_at: datetime


def signal_of(lease: Lease, outcome: Outcome) -> Signal | None:
    """None if it says nothing: a wrong argument, a cancelled job or a dead worker are not the resource's fault."""
    match outcome:
        case Done():
            return Signal(True, lease.started_at)
        case TimedOut():
            return Signal(False, lease.started_at)
        case Failed(failure) if classify(failure, lease.spec.options.retry) == "transient":
            return Signal(False, lease.started_at)
        case _:
            return None


def next_gate(gate: Gate, breaker: Breaker, heard: Iterable[Signal], now: datetime) -> Gate:
    """The gate once these were heard, in order."""
    for one in heard:
        if gate.state == "closed":
            gate = _closed(gate, breaker, now, is_good=one.is_good)
        elif _is_probe(one, gate, breaker):
            gate = _open(gate, breaker, now, is_good=one.is_good)
    return gate


def _closed(gate: Gate, breaker: Breaker, now: datetime, *, is_good: bool) -> Gate:
    if is_good:
        return Gate(opened=gate.opened) if gate.opened else NO_GATE
    failures = gate.failures + 1
    if failures < breaker.failures:
        return Gate(failures=failures, opened=gate.opened)
    return _opened(gate, breaker, failures, now)


def _open(gate: Gate, breaker: Breaker, now: datetime, *, is_good: bool) -> Gate:
    if not is_good:
        return _opened(gate, breaker, gate.failures + 1, now)
    successes = gate.successes + 1
    if successes >= breaker.successes:
        return Gate(opened=gate.opened)
    return Gate(
        state="open", probes=breaker.probes, failures=gate.failures, successes=successes, opened=gate.opened,
        opened_at=gate.opened_at,
    )  # fmt: skip


def _opened(gate: Gate, breaker: Breaker, failures: int, now: datetime) -> Gate:
    return Gate(
        state="open", shut_for=breaker.open_for, probes=breaker.probes, failures=failures, opened=gate.opened + 1,
        opened_at=now,
    )  # fmt: skip


def _is_probe(heard: Signal, gate: Gate, breaker: Breaker) -> bool:
    """Whether it began after the gate had opened again; those that were under way when it shut tell nothing new. Half
    the time is left for clocks that differ: nothing begins in between."""
    return gate.opened_at is None or heard.started_at >= gate.opened_at + breaker.open_for / 2

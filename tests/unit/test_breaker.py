"""When a breaker opens, who may probe, and when it closes."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybreak.core.model import (
    NO_GATE,
    Breaker,
    Cancelled,
    Done,
    Failed,
    Failure,
    Gate,
    HandedBack,
    JobSpec,
    Lease,
    Lost,
    Need,
    Options,
    Put,
    ResourceSettings,
    Suspended,
    TimedOut,
)
from daybreak.policy.breaker import Signal, gate_with_probe, next_gate, signal_of
from daybreak.policy.settle import settle
from daybreak.store.protocol import EVENTS_TOPIC, Claim, Exchange
from daybreak.testing.contract.builders import LEASE, MINUTE, NOON, SECOND
from daybreak.worker.supervisor.breaker_reports import BreakerReports

BREAKER = Breaker(failures=3, successes=2, open_for=MINUTE, probes=1)
GOOD, BAD = Signal(True, NOON), Signal(False, NOON)
PROBED = NOON + MINUTE


def opened() -> Gate:
    return next_gate(NO_GATE, BREAKER, [BAD] * 3, NOON)


def test_it_opens_after_so_many_failures_in_a_row():
    gate = next_gate(NO_GATE, BREAKER, [BAD, BAD], NOON)
    assert (gate.state, gate.failures, gate.probes) == ("closed", 2, None)
    gate = next_gate(gate, BREAKER, [BAD], NOON)
    assert (gate.state, gate.shut_for, gate.probes, gate.opened, gate.opened_at) == ("open", MINUTE, 1, 1, NOON)


def test_one_success_begins_the_count_anew():
    gate = next_gate(NO_GATE, BREAKER, [BAD, BAD, GOOD, BAD, BAD], NOON)
    assert (gate.state, gate.failures) == ("closed", 2)
    assert next_gate(NO_GATE, BREAKER, [BAD, GOOD], NOON) == NO_GATE


def failures_at(breaker, *seconds):
    """The gate after failures at these seconds."""
    gate = NO_GATE
    for second in seconds:
        gate = next_gate(gate, breaker, [BAD], NOON + second * SECOND)
    return gate


def test_failures_that_are_far_apart_add_up_unless_they_are_forgotten():
    forgets = Breaker(failures=3, forget_after=MINUTE)
    assert failures_at(Breaker(failures=3), 0, 3600, 7200).state == "open"
    assert failures_at(forgets, 0, 60, 120).state == "open"
    gate = failures_at(forgets, 0, 60, 121)
    assert (gate.state, gate.failures) == ("closed", 1)
    assert next_gate(gate, forgets, [BAD, BAD], NOON + 130 * SECOND).state == "open"
    assert next_gate(gate, forgets, [GOOD], NOON + 130 * SECOND) == NO_GATE


def test_what_was_under_way_when_it_opened_says_nothing_new():
    gate = opened()
    assert next_gate(gate, BREAKER, [BAD, GOOD, BAD], NOON + SECOND) == gate


def test_a_failed_probe_opens_it_again():
    gate = next_gate(opened(), BREAKER, [Signal(False, PROBED)], PROBED)
    assert (gate.state, gate.shut_for, gate.opened, gate.opened_at) == ("open", MINUTE, 2, PROBED)


def test_enough_good_probes_close_it_and_the_first_does_not_shut_it_anew():
    gate = next_gate(opened(), BREAKER, [Signal(True, PROBED)], PROBED)
    assert (gate.state, gate.shut_for, gate.probes, gate.successes) == ("open", timedelta(), 1, 1)
    gate = next_gate(gate, BREAKER, [Signal(True, PROBED)], PROBED)
    assert gate == Gate(opened=1)


def test_a_probe_that_fails_after_a_good_one_opens_it_again():
    gate = next_gate(opened(), BREAKER, [Signal(True, PROBED), Signal(False, PROBED)], PROBED)
    assert (gate.state, gate.successes, gate.opened) == ("open", 0, 2)


def lease() -> Lease:
    return Lease(
        seq=1, spec=JobSpec(id="j", task="t"), fence=1, attempt=1, priority=5, worker="w", until=NOON + LEASE,
        lease_for=LEASE, started_at=NOON, created_at=NOON,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Done(), True),
        (TimedOut(SECOND), False),
        (Failed(Failure(message="gone", kinds=("ConnectionError", "OSError"))), False),
        (Failed(Failure(message="busy", status=503)), False),
        (Failed(Failure(message="wrong", kinds=("ValueError",))), None),
        (Failed(Failure(message="odd", kinds=("Whatever",))), None),
        (Lost(), None),
        (Cancelled(), None),
        (Suspended(), None),
        (HandedBack(), None),
    ],
)
def test_only_transient_errors_count_against_a_resource(outcome, said):
    heard = signal_of(lease(), outcome)
    assert (None if heard is None else heard.is_good) is said


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 300)), max_size=40))
def test_whatever_is_heard_the_gate_is_in_one_of_its_states(heard):
    gate, now = NO_GATE, NOON
    for is_good, seconds in heard:
        now += timedelta(seconds=seconds)
        before, gate = gate, next_gate(gate, BREAKER, [Signal(is_good, now)], now)
        assert gate.opened in (before.opened, before.opened + 1)
        if gate.state == "closed":
            assert gate.failures < BREAKER.failures
            assert gate.probes is None
        else:
            assert gate.probes == BREAKER.probes
            assert gate.opened_at is not None
            assert gate.successes < BREAKER.successes


def test_the_first_probe_is_marked_once_and_shuts_nothing_again():
    gate = opened()
    assert gate_with_probe(gate, BREAKER, NOON) is gate  # it ran already when the breaker opened
    probing = gate_with_probe(gate, BREAKER, PROBED)
    assert (probing.state, probing.probing, probing.shut_for) == ("open", True, timedelta())
    assert (probing.probes, probing.failures, probing.opened_at) == (gate.probes, gate.failures, gate.opened_at)
    assert gate_with_probe(probing, BREAKER, PROBED) is probing
    half = next_gate(probing, BREAKER, [Signal(True, PROBED)], PROBED)
    assert (half.state, half.probing, half.successes) == ("open", True, 1)
    again = next_gate(half, BREAKER, [Signal(False, PROBED)], PROBED)
    assert (again.state, again.probing, again.shut_for) == ("open", False, MINUTE)
    assert not next_gate(half, BREAKER, [Signal(True, PROBED)], PROBED).probing
    assert gate_with_probe(NO_GATE, BREAKER, PROBED) is NO_GATE


@pytest.mark.parametrize("ends_first", [False, True])
async def test_a_probe_is_told_before_what_it_finds(store, world, ends_first):
    """Also if it has ended before its start was looked at."""
    breaker = Breaker(failures=1, successes=1, open_for=MINUTE)
    settings = msgspec.json.encode(ResourceSettings(breaker=breaker))
    await store.put([Put(kind="resource", name="door", value=settings)])
    needs = Options(resources=(Need("door"),))
    await store.insert([JobSpec(id=name, task="t", options=needs) for name in ("a", "b")])
    reports = BreakerReports(store, world, "w1")
    running = asyncio.create_task(reports.run())

    async def claim() -> Lease:
        [lease] = (await store.exchange(Exchange(claim=Claim(worker="w1")))).leases
        reports.started([lease])
        return lease

    lease = await claim()
    await reports.report([(lease, Signal(False, lease.started_at))])
    await store.exchange(Exchange(settle=[settle(lease, Done(), chance=0.5, by="w1")]))
    world.pass_time(2 * MINUTE)
    watch = store.watch([EVENTS_TOPIC])
    lease = await claim()
    if not ends_first:
        while (await store.events()).events[-1].kind != "breaker_probing":
            assert await watch.wait(MINUTE)
    await reports.report([(lease, Signal(True, lease.started_at))])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    told = [(event.kind, event.note, event.by) for event in (await store.events()).events if not event.job]
    assert told == [(kind, "door", "w1") for kind in ("breaker_opened", "breaker_probing", "breaker_closed")]

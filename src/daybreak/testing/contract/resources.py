"""Promise 4: slots, rates and gates of resources are never exceeded, cluster-wide, and never leak."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from daybreak.errors import BadInput
from daybreak.model import (
    Cancelled,
    Done,
    HandedBack,
    Lease,
    Lost,
    Outcome,
    Put,
    Settlement,
    State,
    Suspended,
    TimedOut,
)
from daybreak.policy.settle import settle
from daybreak.store import Action, Claim, Purge, Store, job_topic, work_topic
from daybreak.testing.contract.builders import (
    FATAL,
    HOUR,
    LEASE,
    MINUTE,
    NOON,
    OOPS,
    SECOND,
    accept,
    accept_all,
    act,
    assert_sound,
    beat,
    configure,
    end,
    exchange,
    find_all,
    kinds_of,
    look,
    needs,
    provide,
    reap,
    set_gate,
    spec,
    state_of,
    take,
    take_ids,
    take_one,
    used,
    verdicts,
    waiting,
)

EVERY_OUTCOME: tuple[Outcome, ...] = (
    Done(), OOPS, FATAL, TimedOut(MINUTE), Lost(), Cancelled(), Suspended(), HandedBack(),
)  # fmt: skip
PLECS = needs("plecs")


class Slots:
    async def test_slots_are_never_exceeded_and_never_leak(self, store: Store) -> None:
        await provide(store, "plecs", slots=2)
        await accept_all(store, 40, resources=PLECS)
        now = NOON
        for outcome in EVERY_OUTCOME:
            leases = await take(store, 9, now=now)
            assert len(leases) == 2, outcome
            assert await take(store, 9, now=now, worker="w2") == []
            assert await used(store, "plecs") == 2
            for lease in leases:
                assert await end(store, lease, outcome, now=now)
            assert await used(store, "plecs") == 0
            await assert_sound(store)
            now += MINUTE

    async def test_slots_hold_under_concurrent_claims(self, store: Store) -> None:
        await provide(store, "plecs", slots=3)
        await accept_all(store, 30, resources=PLECS)
        claims = await asyncio.gather(*(take(store, 2, worker=f"w{n}") for n in range(8)))
        assert sum(map(len, claims)) == 3
        await assert_sound(store)

    async def test_a_resource_without_settings_limits_nothing(self, store: Store) -> None:
        jobs = await accept_all(store, 5, resources=PLECS)
        assert await take_ids(store, 9) == jobs
        assert await used(store, "plecs") == 5

    async def test_a_job_that_must_wait_is_blocked_and_not_charged(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        first, second = await accept_all(store, 2, resources=PLECS)
        lease = await take_one(store)
        assert await take(store) == []
        job = await look(store, second)
        assert (job.state, job.blocked_on, job.attempt) == (State.BLOCKED, "plecs", 0)
        assert await find_all(store, states=frozenset({State.BLOCKED})) == [second]
        assert await waiting(store, "plecs") == 1
        await end(store, lease)
        assert lease.job == first
        assert await state_of(store, second) is State.QUEUED
        assert (await look(store, second)).blocked_on is None
        assert await take_ids(store) == [second]
        assert await kinds_of(store, second) == ["submitted", "blocked", "unblocked", "started"]
        await assert_sound(store)

    async def test_one_exchange_gives_a_slot_back_and_takes_it_again(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        jobs = await accept_all(store, 4, resources=PLECS)
        lease = await take_one(store)
        for expected in jobs[1:]:
            done = settle(lease, Done(), chance=0.5, by="w1")
            [lease] = (await exchange(store, settle=[done], claim=Claim(worker="w1", limit=4, lease_for=LEASE))).leases
            assert lease.job == expected

    async def test_blocked_jobs_hold_up_no_other(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        await accept_all(store, 250, resources=PLECS, priority=0)
        plain = await accept(store, priority=9)
        taken: list[str] = []
        for _ in range(4):  # one claim parks a bounded number
            taken += await take_ids(store, 9)
        assert taken[-1] == plain
        assert len(taken) == 2
        assert await waiting(store, "plecs") == 249

    async def test_one_claim_parks_a_bounded_number_and_says_so(self, store: Store) -> None:
        await provide(store, "plecs", slots=0)
        await accept_all(store, 150, resources=PLECS)
        asked = Claim(worker="w1", limit=5, lease_for=LEASE)
        first = await exchange(store, claim=asked)
        assert first.leases == []
        assert first.again
        assert await waiting(store, "plecs") == 100
        second = await exchange(store, claim=asked)
        assert not second.again
        assert await waiting(store, "plecs") == 150

    async def test_the_best_ranked_gets_what_is_freed(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        low = await accept(store, resources=PLECS, priority=8)
        lease = await take_one(store)
        await accept(store, resources=PLECS, priority=7)
        high = await accept(store, resources=PLECS, priority=1)
        assert await take(store) == []
        await end(store, lease)
        assert lease.job == low
        assert await take_ids(store, 9) == [high]

    async def test_a_changed_priority_holds_while_blocked(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        _, second, third = await accept_all(store, 3, resources=PLECS)
        lease = await take_one(store)
        assert await take(store) == []
        assert await act(store, "rerank", third, priority=1) == ["done"]
        assert await state_of(store, third) is State.BLOCKED
        await end(store, lease)
        assert await take_ids(store) == [third]
        assert await state_of(store, second) in (State.BLOCKED, State.QUEUED)

    async def test_more_slots_set_while_jobs_wait_are_used_at_once(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        jobs = await accept_all(store, 5, resources=PLECS)
        await take_one(store)
        assert await take(store) == []
        await provide(store, "plecs", slots=3)
        assert await take_ids(store, 9) == jobs[1:3]
        await store.put([Put(kind="resource", name="plecs", value=None)])
        assert await take_ids(store, 9) == jobs[3:]
        assert await used(store, "plecs") == 5

    async def test_fewer_slots_than_in_use_take_nothing_away(self, store: Store) -> None:
        await provide(store, "plecs", slots=3)
        jobs = await accept_all(store, 5, resources=PLECS)
        leases = await take(store, 3)
        await provide(store, "plecs", slots=1)
        assert await take(store) == []
        await end(store, leases[0])
        await end(store, leases[1])
        assert await take(store) == []
        await end(store, leases[2])
        assert await take_ids(store, 9) == [jobs[3]]

    async def test_very_many_who_wait_are_freed_a_bounded_number_at_a_time(self, store: Store) -> None:
        await provide(store, "plecs", slots=0)
        jobs = await accept_all(store, 250, resources=PLECS)
        for _ in range(3):
            assert await take(store) == []
        assert await waiting(store, "plecs") == 250
        await provide(store, "plecs", slots=1000)
        assert await waiting(store, "plecs") == 150
        taken: list[str] = []
        for _ in range(6):
            taken += await take_ids(store, 100, now=NOON + SECOND)
        assert taken == jobs

    async def test_a_dead_holders_slot_is_free_again_when_its_lease_is_settled(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        first, _ = await accept_all(store, 2, resources=PLECS)
        await take_one(store)
        later = NOON + HOUR
        assert await take(store, now=later) == []
        [taken] = await reap(store, now=later)
        assert await used(store, "plecs") == 1
        await end(store, taken, Lost(), now=later)
        assert await used(store, "plecs") == 0
        assert await take_ids(store, now=later) == [first]
        await assert_sound(store)

    async def test_a_job_that_goes_while_it_may_try_leaves_its_turn_to_the_next(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        actions: tuple[Action, ...] = ("cancel", "suspend")
        for action in actions:
            jobs = await accept_all(store, 3, resources=PLECS)
            lease = await take_one(store)
            assert await take(store) == []
            await end(store, lease)
            assert await state_of(store, jobs[1]) is State.QUEUED
            assert await act(store, action, jobs[1]) == ["done"]
            lease = await take_one(store)
            assert lease.job == jobs[2]
            await end(store, lease)

    async def test_cancelling_a_blocked_job_takes_it_out(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        _, second, third = await accept_all(store, 3, resources=PLECS)
        lease = await take_one(store)
        assert await take(store) == []
        assert await act(store, "cancel", second) == ["done"]
        await end(store, lease)
        assert await take_ids(store, 9) == [third]
        await assert_sound(store)

    async def test_a_blocked_job_that_was_suspended_comes_back_to_its_place(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        _, second, third = await accept_all(store, 3, resources=PLECS)
        lease = await take_one(store)
        assert await take(store) == []
        assert await act(store, "suspend", second) == ["done"]
        assert await act(store, "resume", second) == ["done"]
        await end(store, lease)
        assert await take_ids(store) == [second]
        assert await state_of(store, third) in (State.BLOCKED, State.QUEUED)

    async def test_a_blocked_job_expires(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        await accept(store, resources=PLECS)
        late = await accept(store, resources=PLECS, expires_in=MINUTE)
        after = await accept(store, resources=PLECS)
        lease = await take_one(store)
        assert await take(store) == []
        await end(store, lease, now=NOON + HOUR)
        assert await take_ids(store, now=NOON + HOUR) == [after]
        assert await state_of(store, late) is State.FAILED
        await assert_sound(store)

    async def test_time_alone_ends_a_blocked_job_that_waited_too_long(self, store: Store) -> None:
        await provide(store, "plecs", slots=0)
        late = await accept(store, resources=PLECS, expires_in=MINUTE)
        assert await take(store) == []
        assert (await store.advance(now=NOON + HOUR)).expired == 1
        assert await state_of(store, late) is State.FAILED
        assert await waiting(store, "plecs") == 0

    async def test_a_paused_queue_does_not_sit_on_a_free_slot(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        held = await accept(store, queue="held", resources=PLECS, priority=0)
        first, second = await accept_all(store, 2, queue="other", resources=PLECS)
        both = ("held", "other")
        lease = await take_one(store, queues=("other",))
        assert lease.job == first
        assert await take(store, queues=both) == []
        await configure(store, "held", paused=True)
        await end(store, lease)
        lease = await take_one(store, queues=both)
        assert lease.job == second
        await configure(store, "held")
        await end(store, lease)
        assert await take_ids(store, queues=both) == [held]

    async def test_a_task_that_nobody_knows_does_not_sit_on_a_free_slot(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        mine = frozenset({("mine", 1)})
        await accept(store, "theirs", resources=PLECS, priority=0)
        first = await accept(store, "mine", resources=PLECS)
        second = await accept(store, "mine", resources=PLECS)
        lease = await take_one(store, tasks=mine)
        assert lease.job == first
        assert await take(store, 9) == []
        await end(store, lease)
        assert await take_ids(store, tasks=mine) == [second]

    async def test_max_waiting_refuses_more_of_those_who_wait(self, store: Store) -> None:
        await provide(store, "plecs", slots=1, max_waiting=2)
        await accept_all(store, 3, resources=PLECS)
        lease = await take_one(store)
        assert await take(store) == []
        assert await verdicts(store, spec(resources=PLECS), spec()) == ["full", "new"]
        await end(store, lease)
        assert await verdicts(store, spec(resources=PLECS)) == ["new"]

    async def test_a_moved_away_lease_gives_its_slots_back(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        _, second = await accept_all(store, 2, resources=PLECS)
        lease = await take_one(store)
        assert await take(store) == []
        await store.purge(Purge(forwarded=((lease.seq, lease.fence),)), now=NOON)
        assert await used(store, "plecs") == 0
        assert await take_ids(store) == [second]

    async def test_a_freed_slot_wakes_those_who_look_for_work(self, store: Store) -> None:
        await provide(store, "plecs", slots=1)
        await accept_all(store, 2, resources=PLECS)
        lease = await take_one(store)
        assert await take(store) == []
        watch = store.watch([work_topic("default")])
        try:
            await watch.wait(timedelta(milliseconds=1))
            await end(store, lease)
            assert await watch.wait(timedelta(seconds=20))
        finally:
            watch.close()

    async def test_the_place_among_those_who_wait_is_told(self, store: Store) -> None:
        await provide(store, "plecs", slots=0)
        first = await accept(store, resources=PLECS)
        second = await accept(store, resources=PLECS)
        urgent = await accept(store, resources=PLECS, priority=0)
        assert await take(store) == []
        for job, ahead in ((urgent, 0), (first, 1), (second, 2)):
            position = await store.position(job)
            assert position is not None
            assert position.ahead == ahead

    async def test_settings_that_are_none_are_refused(self, store: Store) -> None:
        for kind in ("resource", "gate"):
            with pytest.raises(BadInput, match="plecs"):
                await store.put([Put(kind=kind, name="plecs", value=b'{"slots": "many", "probes": "some"}')])


class Several:
    async def test_several_slots_of_one_are_all_or_none(self, store: Store) -> None:
        await provide(store, "plecs", slots=3)
        two = await accept(store, resources=needs(plecs=2))
        also = await accept(store, resources=needs(plecs=2))
        one = await accept(store, resources=PLECS)
        assert await take_ids(store, 9) == [two, one]
        assert await used(store, "plecs") == 3
        assert await state_of(store, also) is State.BLOCKED

    async def test_several_resources_are_all_or_none(self, store: Store) -> None:
        await provide(store, "a", slots=1)
        await provide(store, "b", slots=1)
        only_b = await accept(store, resources=needs("b"))
        lease = await take_one(store)
        both = await accept(store, resources=needs("a", "b"))
        only_a = await accept(store, resources=needs("a"))
        first = await take_one(store)
        assert (lease.job, first.job) == (only_b, only_a)
        assert (await look(store, both)).blocked_on == "b"
        assert await used(store, "a") == 1
        await end(store, lease)
        assert await take(store) == []
        assert (await look(store, both)).blocked_on == "a"
        await end(store, first)
        assert await take_ids(store) == [both]
        assert (await used(store, "a"), await used(store, "b")) == (1, 1)
        await assert_sound(store)

    async def test_what_one_cannot_use_goes_to_the_next(self, store: Store) -> None:
        """A is freed, the first in line lacks b: a must not lie idle."""
        await provide(store, "a", slots=1)
        await provide(store, "b", slots=1)
        await accept(store, resources=needs("b"))
        await take_one(store)
        await accept(store, resources=needs("a"))
        holder = await take_one(store)
        both = await accept(store, resources=needs("a", "b"), priority=0)
        only_a = await accept(store, resources=needs("a"))
        assert await take(store, 9) == []
        await end(store, holder)
        answer = await exchange(store, claim=Claim(worker="w1", limit=9, lease_for=LEASE))
        assert answer.leases == []
        assert answer.again
        assert await take_ids(store, 9) == [only_a]
        assert (await look(store, both)).blocked_on == "b"

    async def test_a_job_that_needs_two_slots_is_not_passed_over_for_ever(self, store: Store) -> None:
        await provide(store, "plecs", slots=2)
        now = NOON
        await accept_all(store, 2, resources=PLECS)
        running = await take(store, 2, now=now)
        big = await accept(store, resources=needs(plecs=2), now=now)
        started: list[str] = []
        for _ in range(60):
            await accept(store, resources=PLECS, now=now)
            now += SECOND
            await end(store, running.pop(0), now=now)
            leases = await take(store, 9, now=now)
            started += [lease.job for lease in leases]
            running += leases
            if big in started or not running:
                break
        leases = [] if big in started else await take(store, 9, now=now)
        assert big in started + [lease.job for lease in leases]
        assert now - NOON < timedelta(seconds=40)
        await assert_sound(store)

    async def test_a_job_that_needs_two_resources_is_not_passed_over_for_ever(self, store: Store) -> None:
        await provide(store, "a", slots=1)
        await provide(store, "b", slots=1)
        now = NOON
        await accept(store, resources=needs("a"), now=now)
        await accept(store, resources=needs("b"), now=now)
        running = await take(store, 2, now=now)
        both = await accept(store, resources=needs("a", "b"), now=now)
        for _ in range(80):
            await accept(store, resources=needs("a"), now=now)
            await accept(store, resources=needs("b"), now=now)
            now += SECOND
            await end(store, running.pop(0), now=now)
            running += await take(store, 9, now=now)
            if any(lease.job == both for lease in running) or not running:
                break
        running += await take(store, 9, now=now)
        assert both in [lease.job for lease in running]
        assert now - NOON < MINUTE
        await assert_sound(store)

    async def test_what_is_kept_for_one_is_free_again_when_it_goes(self, store: Store) -> None:
        await provide(store, "plecs", slots=2)
        await accept_all(store, 2, resources=PLECS)
        first, second = await take(store, 2)
        big = await accept(store, resources=needs(plecs=2))
        small = await accept_all(store, 2, resources=PLECS)
        assert await take(store) == []
        late = NOON + MINUTE
        await end(store, first, now=late)
        assert await take(store, 9, now=late) == []
        await act(store, "cancel", big, now=late)
        assert await take_ids(store, 9, now=late) == small[:1]
        await end(store, second, now=late)
        assert await take_ids(store, 9, now=late) == small[1:]

    async def test_very_many_that_do_not_fit_are_not_looked_at_all_the_time(self, store: Store) -> None:
        await provide(store, "plecs", slots=3)
        await accept_all(store, 2, resources=PLECS)
        [one, _] = await take(store, 2)
        await accept(store, resources=PLECS)
        [third] = await take(store)
        await accept_all(store, 120, resources=needs(plecs=3))
        for _ in range(2):
            assert await take(store) == []
        await end(store, third)
        answer = await exchange(store, claim=Claim(worker="w1", limit=5, lease_for=LEASE))
        assert answer.leases == []
        assert answer.next_in is None or answer.next_in >= SECOND
        await end(store, one)
        await assert_sound(store)

    async def test_more_slots_than_there_are_wait_and_hold_up_nobody(self, store: Store) -> None:
        await provide(store, "plecs", slots=2)
        huge = await accept(store, resources=needs(plecs=5))
        small = await accept_all(store, 2, resources=PLECS)
        assert await take_ids(store, 9, now=NOON + HOUR) == small
        assert await state_of(store, huge) is State.BLOCKED
        await provide(store, "plecs", slots=7, now=NOON + HOUR)
        assert await take_ids(store, 9, now=NOON + HOUR) == [huge]


class Pace:
    async def test_a_rate_is_kept_by_the_stores_time_of_the_claim(self, store: Store) -> None:
        await provide(store, "api", every=SECOND, burst=3)
        jobs = await accept_all(store, 8, resources=needs("api"))
        assert await take_ids(store, 9) == jobs[:3]
        assert await take_ids(store, 9) == []
        assert await take_ids(store, 9, now=NOON + SECOND - timedelta(microseconds=1)) == []
        assert await take_ids(store, 9, now=NOON + SECOND) == jobs[3:4]
        assert await take_ids(store, 9, now=NOON + 3 * SECOND) == jobs[4:6]
        assert await take_ids(store, 9, now=NOON + HOUR) == jobs[6:]

    async def test_in_any_window_at_most_burst_and_rate_start(self, store: Store) -> None:
        burst, every = 4, timedelta(milliseconds=100)
        await provide(store, "api", every=every, burst=burst)
        await accept_all(store, 80, resources=needs("api"))
        starts: list[float] = []
        now = NOON
        for step in (0, 7, 93, 100, 101, 250, 900, 3, 3, 3, 40, 400, 99, 1, 2, 150, 500):
            now += timedelta(milliseconds=step)
            leases = await take(store, 9, now=now)
            starts += [(now - NOON).total_seconds()] * len(leases)
            for lease in leases:
                await end(store, lease, now=now)
        for begin in starts:
            for end_ in starts:
                if end_ >= begin:
                    within = sum(begin <= at <= end_ for at in starts)
                    assert within <= burst + (end_ - begin) / every.total_seconds() + 1e-6

    async def test_a_claim_says_when_the_next_may_start(self, store: Store) -> None:
        await provide(store, "api", every=MINUTE)
        await accept_all(store, 3, resources=needs("api"))
        asked = Claim(worker="w1", limit=5, lease_for=LEASE)
        answer = await exchange(store, claim=asked)
        assert (len(answer.leases), answer.next_in) == (1, MINUTE)
        answer = await exchange(store, claim=asked, now=NOON + 20 * SECOND)
        assert (len(answer.leases), answer.next_in) == (0, 40 * SECOND)

    async def test_who_lacks_slots_and_no_start_is_not_looked_at_all_the_time(self, store: Store) -> None:
        await provide(store, "api", every=SECOND, burst=9, slots=2)
        await accept(store, resources=needs("api"))
        await take_one(store)
        await accept(store, resources=needs(api=2))
        answer = await exchange(store, claim=Claim(worker="w1", limit=5, lease_for=LEASE))
        assert answer.leases == []
        assert answer.next_in is not None
        assert answer.next_in >= SECOND

    async def test_a_job_handed_back_returns_no_token(self, store: Store) -> None:
        await provide(store, "api", every=MINUTE)
        await accept_all(store, 2, resources=needs("api"))
        await end(store, await take_one(store), HandedBack())
        assert await take(store, 9) == []
        assert len(await take(store, 9, now=NOON + MINUTE)) == 1

    async def test_those_who_wait_for_the_pace_are_queued_when_their_time_comes(self, store: Store) -> None:
        await provide(store, "api", every=MINUTE)
        _, second, third = await accept_all(store, 3, resources=needs("api"))
        assert len(await take(store, 9)) == 1
        assert await state_of(store, second) is State.BLOCKED
        await store.advance(now=NOON + MINUTE)
        assert await state_of(store, second) is State.QUEUED
        assert await state_of(store, third) is State.BLOCKED
        await assert_sound(store)

    async def test_pace_and_slots_hold_together(self, store: Store) -> None:
        await provide(store, "api", every=SECOND, burst=5, slots=2)
        jobs = await accept_all(store, 6, resources=needs("api"))
        leases = await take(store, 9)
        assert [lease.job for lease in leases] == jobs[:2]
        for lease in leases:
            await end(store, lease)
        leases = await take(store, 9)
        assert [lease.job for lease in leases] == jobs[2:4]
        for lease in leases:
            await end(store, lease)
        assert await take_ids(store, 9) == jobs[4:5]
        assert await take_ids(store, 9, now=NOON + SECOND) == jobs[5:]


class Gates:
    async def test_nothing_starts_while_the_gate_is_shut(self, store: Store) -> None:
        await provide(store, "server", slots=5)
        await set_gate(store, "server", state="open", shut_for=MINUTE, probes=1)
        first, second = await accept_all(store, 2, resources=needs("server"))
        assert await take(store, 9) == []
        assert await state_of(store, first) is State.BLOCKED
        [usage] = await store.usage("server")
        assert usage.shut_until == NOON + MINUTE
        assert await take(store, 9, now=NOON + MINUTE - SECOND) == []
        probe = await take_one(store, limit=9, now=NOON + MINUTE)
        assert probe.job == first
        assert await take(store, 9, now=NOON + MINUTE) == []
        await set_gate(store, "server", now=NOON + MINUTE)
        assert await take_ids(store, 9, now=NOON + MINUTE) == [second]
        await assert_sound(store)

    async def test_a_failed_probe_shuts_it_again(self, store: Store) -> None:
        await set_gate(store, "server", state="open", shut_for=MINUTE, probes=1)
        [job] = await accept_all(store, 1, resources=needs("server"))
        probe = await take_one(store, now=NOON + MINUTE)
        await set_gate(store, "server", state="open", shut_for=MINUTE, probes=1, now=NOON + MINUTE)
        await end(store, probe, HandedBack(), now=NOON + MINUTE)
        assert await take(store, 9, now=NOON + MINUTE + SECOND) == []
        assert await take_ids(store, 9, now=NOON + 2 * MINUTE) == [job]

    async def test_probes_are_never_more_than_there_are_slots(self, store: Store) -> None:
        await provide(store, "server", slots=2)
        await set_gate(store, "server", state="open", shut_for=MINUTE, probes=5)
        await accept_all(store, 6, resources=needs("server"))
        assert len(await take(store, 9, now=NOON + MINUTE)) == 2
        await provide(store, "server", slots=0, now=NOON + MINUTE)
        assert await take(store, 9, now=NOON + MINUTE) == []
        await assert_sound(store)

    async def test_a_job_that_needs_more_slots_than_there_are_probes_can_probe(self, store: Store) -> None:
        await provide(store, "server", slots=4)
        await set_gate(store, "server", state="open", shut_for=MINUTE, probes=1)
        first, *_ = await accept_all(store, 3, resources=needs(server=2))
        assert await take(store, 9) == []
        assert await take_ids(store, 9, now=NOON + MINUTE) == [first]
        assert await used(store, "server") == 2

    async def test_a_gate_that_counts_and_is_not_shut_limits_nothing(self, store: Store) -> None:
        await set_gate(store, "server", failures=3)
        jobs = await accept_all(store, 3, resources=needs("server"))
        assert await take_ids(store, 9) == jobs

    async def test_a_claim_says_when_a_gate_opens(self, store: Store) -> None:
        await set_gate(store, "server", state="open", shut_for=MINUTE, probes=1)
        await accept(store, resources=needs("server"))
        answer = await exchange(store, claim=Claim(worker="w1", limit=5, lease_for=LEASE), now=NOON + SECOND)
        assert answer.next_in == MINUTE - SECOND


class Holders:
    """Jobs that are run by whoever submitted them: locks."""

    async def test_a_free_lock_is_held_by_its_submitter_at_once(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        job = await _want(store, "ann", "lock:a")
        held = await look(store, job)
        assert (held.state, held.worker, held.fence, held.attempt) == (State.RUNNING, "ann", 1, 1)
        assert held.leased_until == NOON + LEASE
        assert await kinds_of(store, job) == ["submitted", "started"]
        await assert_sound(store)

    async def test_no_claim_finds_it(self, store: Store) -> None:
        await provide(store, "lock:a", slots=0)
        job = await _want(store, "ann", "lock:a")
        assert await take(store, 9, queues=("lock",)) == []
        assert await state_of(store, job) is State.BLOCKED

    async def test_what_is_freed_goes_to_the_best_ranked_of_those_who_wait(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        ann = await _want(store, "ann", "lock:a")
        bob = await _want(store, "bob", "lock:a")
        cyd = await _want(store, "cyd", "lock:a", priority=1)
        assert await _give_back(store, ann)
        assert (await state_of(store, bob), await state_of(store, cyd)) == (State.BLOCKED, State.RUNNING)
        assert await _give_back(store, cyd)
        assert await state_of(store, bob) is State.RUNNING
        assert (await look(store, bob)).worker == "bob"
        await assert_sound(store)

    async def test_one_who_gave_up_is_never_granted(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        ann = await _want(store, "ann", "lock:a")
        bob = await _want(store, "bob", "lock:a")
        cyd = await _want(store, "cyd", "lock:a")
        assert await act(store, "cancel", bob) == ["done"]
        assert await _give_back(store, ann)
        assert await state_of(store, cyd) is State.RUNNING
        assert await state_of(store, bob) is State.CANCELLED

    async def test_one_who_waited_too_long_is_never_granted(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        ann = await _want(store, "ann", "lock:a")
        bob = await _want(store, "bob", "lock:a", expires_in=MINUTE)
        cyd = await _want(store, "cyd", "lock:a")
        assert await _give_back(store, ann, now=NOON + HOUR)
        assert await state_of(store, bob) is State.FAILED
        assert await state_of(store, cyd) is State.RUNNING

    async def test_a_dead_holder_loses_it_to_the_next_under_a_higher_fence(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        ann = await _want(store, "ann", "lock:a")
        bob = await _want(store, "bob", "lock:a")
        held = await look(store, ann)
        later = NOON + HOUR
        [taken] = await reap(store, now=later)
        assert await state_of(store, bob) is State.BLOCKED
        assert await end(store, taken, Lost(), now=later)
        assert await state_of(store, ann) is State.FAILED
        assert (await look(store, bob)).state is State.RUNNING
        assert not await _give_back(store, ann, fence=held.fence, now=later)

    async def test_every_holder_has_a_higher_fence_than_all_before(self, store: Store) -> None:
        for name in ("lock:a", "lock:b"):
            await provide(store, name, slots=1)
        fences: dict[str, list[int]] = {"lock:a": [], "lock:b": []}
        for n, locks in enumerate((["lock:a"], ["lock:a"], ["lock:a", "lock:b"], ["lock:b"], ["lock:a"], ["lock:b"])):
            job = await _want(store, f"w{n}", *locks)
            for name in locks:
                fences[name].append((await look(store, job)).fence)
            assert await _give_back(store, job)
        for name, given in fences.items():
            assert given == sorted(set(given)), name
        await assert_sound(store)

    async def test_several_locks_are_all_or_none(self, store: Store) -> None:
        for name in ("lock:a", "lock:b"):
            await provide(store, name, slots=1)
        ann = await _want(store, "ann", "lock:b")
        both = await _want(store, "bob", "lock:a", "lock:b")
        assert await state_of(store, both) is State.BLOCKED
        assert await used(store, "lock:a") == 0
        cyd = await _want(store, "cyd", "lock:a")
        assert await state_of(store, cyd) is State.RUNNING
        assert await _give_back(store, ann)
        assert (await look(store, both)).blocked_on == "lock:a"
        assert await _give_back(store, cyd)
        assert await state_of(store, both) is State.RUNNING
        assert (await used(store, "lock:a"), await used(store, "lock:b")) == (1, 1)
        await assert_sound(store)

    async def test_a_holder_that_needs_two_slots_is_not_passed_over_for_ever(self, store: Store) -> None:
        await provide(store, "lock:a", slots=2)
        held = [await _want(store, "ann", "lock:a"), await _want(store, "bob", "lock:a")]
        both = await accept(store, "lock", queue="lock", resources=needs(**{"lock:a": 2}), holder="cyd", hold_for=LEASE)
        now = NOON
        for n in range(60):
            now += SECOND
            held.append(await _want(store, f"w{n}", "lock:a", now=now))
            running = [job for job in held if await state_of(store, job) is State.RUNNING]
            assert await _give_back(store, running[0], now=now)
            if await state_of(store, both) is State.RUNNING:
                break
        assert await state_of(store, both) is State.RUNNING
        assert now - NOON < timedelta(seconds=40)
        await assert_sound(store)

    async def test_a_job_that_is_tried_again_by_a_person_waits_anew(self, store: Store) -> None:
        await provide(store, "plecs", slots=2)
        await accept_all(store, 2, resources=PLECS)
        running = await take(store, 2)
        big = await accept(store, resources=needs(plecs=2))
        assert await take(store) == []
        assert await act(store, "cancel", big) == ["done"]
        later = NOON + MINUTE
        assert await act(store, "retry", big, now=later) == ["done"]
        small = await accept(store, resources=PLECS, now=later)
        assert await take(store, now=later) == []
        await end(store, running[0], now=later)
        assert await take_ids(store, now=later) == [small], "nothing is kept for who has just come back"

    async def test_who_waits_is_told(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        ann = await _want(store, "ann", "lock:a")
        bob = await _want(store, "bob", "lock:a")
        watch = store.watch([job_topic(bob)])
        try:
            assert await _give_back(store, ann)
            assert await watch.wait(timedelta(seconds=20))
        finally:
            watch.close()

    async def test_the_place_of_a_waiter_is_told(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        await _want(store, "ann", "lock:a")
        waiters = [await _want(store, f"w{n}", "lock:a") for n in range(3)]
        assert await act(store, "rerank", waiters[2], priority=0) == ["done"]
        for job, ahead in ((waiters[2], 0), (waiters[0], 1), (waiters[1], 2)):
            position = await store.position(job)
            assert position is not None
            assert position.ahead == ahead

    async def test_a_holder_keeps_it_by_its_heartbeat(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        job = await look(store, await _want(store, "ann", "lock:a"))
        lease = await _lease_of(store, job.id)
        assert (await beat(store, lease, now=NOON + 5 * SECOND)).held
        assert await reap(store, now=NOON + 14 * SECOND) == []

    async def test_what_ended_is_not_tried_again(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        ann = await _want(store, "ann", "lock:a")
        assert await _give_back(store, ann)
        assert await act(store, "retry", ann) == ["refused"]

    async def test_a_suspended_waiter_is_passed_over_until_it_is_resumed(self, store: Store) -> None:
        await provide(store, "lock:a", slots=1)
        ann = await _want(store, "ann", "lock:a")
        bob = await _want(store, "bob", "lock:a")
        assert await act(store, "suspend", bob) == ["done"]
        assert await _give_back(store, ann)
        assert await state_of(store, bob) is State.SUSPENDED
        assert await act(store, "resume", bob) == ["done"]
        assert await state_of(store, bob) is State.RUNNING


async def _want(store: Store, who: str, *locks: str, **said: Any) -> str:
    return await accept(store, "lock", queue="lock", resources=needs(*locks), holder=who, hold_for=LEASE, **said)


async def _lease_of(store: Store, job: str) -> Lease:
    held = await look(store, job)
    assert held.worker
    assert held.leased_until
    assert held.started_at
    return Lease(
        seq=held.seq,
        spec=held.spec,
        fence=held.fence,
        attempt=held.attempt,
        priority=held.priority,
        worker=held.worker,
        until=held.leased_until,
        lease_for=held.spec.hold_for,
        started_at=held.started_at,
        created_at=held.created_at,
    )


async def _give_back(store: Store, job: str, *, fence: int | None = None, now: datetime = NOON) -> bool:
    held = await look(store, job)
    if held.state is State.RUNNING:
        return await end(store, await _lease_of(store, job), now=now)
    settlement = Settlement(
        seq=held.seq, job=job, fence=fence or held.fence, state=State.COMPLETED, attempt=held.attempt
    )
    [settled] = (await exchange(store, settle=[settlement], now=now)).settled
    return settled

"""Promise 4: rates are never exceeded, in any window; and what a shut gate lets through."""

from __future__ import annotations

from datetime import timedelta

from daybreak.model import (
    HandedBack,
    State,
)
from daybreak.store import Claim, Store
from daybreak.testing.contract.builders import (
    HOUR,
    LEASE,
    MINUTE,
    NOON,
    SECOND,
    accept,
    accept_all,
    assert_sound,
    end,
    exchange,
    needs,
    provide,
    set_gate,
    state_of,
    take,
    take_ids,
    take_one,
    used,
)


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

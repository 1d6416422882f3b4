"""Promise 4: rates are never exceeded, in any window. Also: what an open breaker lets through."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Final

from daybreak.core.model import Done, HandedBack, Lease, State
from daybreak.policy.settle import settle as settlement_of
from daybreak.store.protocol import Claim, Store
from daybreak.testing.contract.builders import (
    HOUR,
    LEASE,
    MINUTE,
    NOON,
    SECOND,
    accept,
    accept_all,
    amend,
    assert_sound,
    claim_ids,
    claim_jobs,
    claim_one,
    exchange,
    needs,
    provide,
    set_gate,
    settle,
    state_of,
    used,
)

UNUSED: Final = HandedBack(unused=True)


class Rates:
    async def test_a_rate_is_kept_by_the_stores_time_of_the_claim(self, store: Store) -> None:
        await provide(store, "api", every=SECOND, burst=3)
        jobs = await accept_all(store, 8, resources=needs("api"))
        assert await claim_ids(store, 9) == jobs[:3]
        assert await claim_ids(store, 9) == []
        assert await claim_ids(store, 9, now=NOON + SECOND - timedelta(microseconds=1)) == []
        assert await claim_ids(store, 9, now=NOON + SECOND) == jobs[3:4]
        assert await claim_ids(store, 9, now=NOON + 3 * SECOND) == jobs[4:6]
        assert await claim_ids(store, 9, now=NOON + HOUR) == jobs[6:]

    async def test_in_any_window_at_most_burst_and_rate_start(self, store: Store) -> None:
        burst, every = 4, timedelta(milliseconds=100)
        await provide(store, "api", every=every, burst=burst)
        await accept_all(store, 80, resources=needs("api"))
        starts: list[float] = []
        now = NOON
        for step in (0, 7, 93, 100, 101, 250, 900, 3, 3, 3, 40, 400, 99, 1, 2, 150, 500):
            now += timedelta(milliseconds=step)
            leases = await claim_jobs(store, 9, now=now)
            starts += [(now - NOON).total_seconds()] * len(leases)
            for lease in leases:
                await settle(store, lease, now=now)
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
        await claim_one(store)
        await accept(store, resources=needs(api=2))
        answer = await exchange(store, claim=Claim(worker="w1", limit=5, lease_for=LEASE))
        assert answer.leases == []
        assert answer.next_in is not None
        assert answer.next_in >= SECOND

    async def test_a_job_handed_back_returns_no_token(self, store: Store) -> None:
        await provide(store, "api", every=MINUTE)
        await accept_all(store, 2, resources=needs("api"))
        await settle(store, await claim_one(store), HandedBack())
        assert await claim_jobs(store, 9) == []
        assert len(await claim_jobs(store, 9, now=NOON + MINUTE)) == 1

    async def test_a_lease_that_was_never_used_returns_its_start_at_once(self, store: Store) -> None:
        await provide(store, "api", every=MINUTE)
        first, second = await accept_all(store, 2, resources=needs("api"))
        [lease] = await claim_jobs(store, 9)
        assert await state_of(store, second) is State.BLOCKED
        await settle(store, lease, UNUSED, now=NOON + SECOND)
        assert await state_of(store, second) is State.QUEUED, "who waits for the pace is looked at again"
        assert await claim_ids(store, 9, now=NOON + SECOND) == [first]
        assert await claim_jobs(store, 9, now=NOON + MINUTE) == []
        assert await claim_ids(store, 9, now=NOON + SECOND + MINUTE) == [second]
        await assert_sound(store)

    async def test_several_of_one_claim_return_a_start_each(self, store: Store) -> None:
        await provide(store, "api", every=MINUTE, burst=4)
        await accept_all(store, 9, resources=needs("api"))
        leases = await claim_jobs(store, 9)
        settled = [settlement_of(lease, UNUSED, chance=0.5, by="w1") for lease in leases[:3]]
        answer = await exchange(store, settle=settled, claim=Claim(worker="w1", limit=9, lease_for=LEASE))
        assert (len(leases), answer.settled, len(answer.leases)) == (4, [True] * 3, 3)
        assert await claim_jobs(store, 9) == []
        await assert_sound(store)

    async def test_no_start_is_returned_once_another_has_started_since(self, store: Store) -> None:
        await provide(store, "api", every=SECOND)
        await accept_all(store, 4, resources=needs("api"))
        unused = await claim_one(store)
        assert len(await claim_jobs(store, 9, now=NOON + SECOND)) == 1
        later = NOON + timedelta(seconds=1.2)
        await settle(store, unused, UNUSED, now=later)
        assert await claim_jobs(store, 9, now=later) == []
        assert len(await claim_jobs(store, 9, now=NOON + 2 * SECOND)) == 1

    async def test_of_a_burst_a_start_returns_though_another_has_started_since(self, store: Store) -> None:
        await provide(store, "api", every=MINUTE, burst=3)
        await accept_all(store, 9, resources=needs("api"))
        unused = await claim_one(store)
        used_at = NOON + SECOND
        await claim_one(store, now=used_at)
        await settle(store, unused, UNUSED, now=NOON + 2 * SECOND)
        assert len(await claim_jobs(store, 9, now=NOON + 2 * SECOND)) == 2, "as if the burst had begun with the second"
        assert await claim_jobs(store, 9, now=used_at + MINUTE - timedelta(microseconds=1)) == []
        assert len(await claim_jobs(store, 9, now=used_at + MINUTE)) == 1
        await assert_sound(store)

    async def test_a_repeated_settlement_returns_no_second_start(self, store: Store) -> None:
        await provide(store, "api", every=MINUTE, burst=2)
        await accept_all(store, 5, resources=needs("api"))
        lease, _ = await claim_jobs(store, 9)
        for _ in range(3):
            assert await settle(store, lease, UNUSED)
        assert len(await claim_jobs(store, 9)) == 1
        assert await claim_jobs(store, 9) == []

    async def test_a_lease_that_was_never_used_returns_its_start_wherever_its_job_goes(self, store: Store) -> None:
        await provide(store, "api", every=MINUTE)
        await accept_all(store, 5, resources=needs("api"))
        for number, outcome in enumerate((HandedBack(unused=True, delay=HOUR), UNUSED, UNUSED)):
            now = NOON + number * SECOND
            lease = await claim_one(store, now=now)
            if number:
                await amend(store, ("cancel", "suspend")[number - 1], lease.job, now=now)
            await settle(store, lease, outcome, now=now)
        assert len(await claim_jobs(store, 9, now=NOON + 3 * SECOND)) == 1
        await assert_sound(store)

    async def test_no_start_that_was_counted_at_another_pace_is_returned(self, store: Store) -> None:
        await provide(store, "api", every=SECOND, burst=3)
        await accept_all(store, 6, resources=needs("api"))
        first, *_ = await claim_jobs(store, 9)
        await provide(store, "api", every=MINUTE)
        await settle(store, first, UNUSED)
        assert await claim_jobs(store, 9, now=NOON + 2 * SECOND) == []
        assert len(await claim_jobs(store, 9, now=NOON + 3 * SECOND)) == 1

    async def test_the_rate_holds_whatever_is_handed_back(self, store: Store) -> None:
        """In any window of jobs that did begin, by chance and in hindsight."""
        chance = random.Random(3)
        for burst in (1, 3, 12):
            api, every = f"api-{burst}", timedelta(milliseconds=100)
            await provide(store, api, every=every, burst=burst)
            await accept_all(store, 60, queue=api, resources=needs(api))
            now, held, starts = NOON, list[Lease](), list[float]()
            for _ in range(60):
                now += timedelta(milliseconds=chance.choice((0, 1, 5, 20, 70, 100, 250)))
                held += await claim_jobs(store, chance.randint(1, 4), now=now, queues=(api,))
                chance.shuffle(held)
                for lease in [held.pop() for _ in range(chance.randint(0, len(held)))]:
                    is_unused = chance.random() < 0.5
                    await settle(store, lease, UNUSED if is_unused else Done(), now=now)
                    if not is_unused:
                        starts.append((lease.started_at - NOON).total_seconds())
            assert len(starts) > 10
            for begin in starts:
                for last in starts:
                    within = sum(begin <= at <= last for at in starts)
                    assert within <= burst + max(last - begin, 0) / every.total_seconds() + 1e-6
        await assert_sound(store)

    async def test_those_who_wait_for_the_pace_are_queued_when_their_time_comes(self, store: Store) -> None:
        await provide(store, "api", every=MINUTE)
        _, second, third = await accept_all(store, 3, resources=needs("api"))
        assert len(await claim_jobs(store, 9)) == 1
        assert await state_of(store, second) is State.BLOCKED
        await store.advance(now=NOON + MINUTE)
        assert await state_of(store, second) is State.QUEUED
        assert await state_of(store, third) is State.BLOCKED
        await assert_sound(store)

    async def test_pace_and_slots_hold_together(self, store: Store) -> None:
        await provide(store, "api", every=SECOND, burst=5, slots=2)
        jobs = await accept_all(store, 6, resources=needs("api"))
        leases = await claim_jobs(store, 9)
        assert [lease.job for lease in leases] == jobs[:2]
        for lease in leases:
            await settle(store, lease)
        leases = await claim_jobs(store, 9)
        assert [lease.job for lease in leases] == jobs[2:4]
        for lease in leases:
            await settle(store, lease)
        assert await claim_ids(store, 9) == jobs[4:5]
        assert await claim_ids(store, 9, now=NOON + SECOND) == jobs[5:]


class Gates:
    async def test_nothing_starts_while_the_gate_is_shut(self, store: Store) -> None:
        await provide(store, "server", slots=5)
        await set_gate(store, "server", state="open", shut_for=MINUTE, probes=1)
        first, second = await accept_all(store, 2, resources=needs("server"))
        assert await claim_jobs(store, 9) == []
        assert await state_of(store, first) is State.BLOCKED
        [usage] = await store.usage("server")
        assert usage.shut_until == NOON + MINUTE
        assert await claim_jobs(store, 9, now=NOON + MINUTE - SECOND) == []
        probe = await claim_one(store, limit=9, now=NOON + MINUTE)
        assert probe.job == first
        assert await claim_jobs(store, 9, now=NOON + MINUTE) == []
        await set_gate(store, "server", now=NOON + MINUTE)
        assert await claim_ids(store, 9, now=NOON + MINUTE) == [second]
        await assert_sound(store)

    async def test_a_failed_probe_shuts_it_again(self, store: Store) -> None:
        await set_gate(store, "server", state="open", shut_for=MINUTE, probes=1)
        [job] = await accept_all(store, 1, resources=needs("server"))
        probe = await claim_one(store, now=NOON + MINUTE)
        await set_gate(store, "server", state="open", shut_for=MINUTE, probes=1, now=NOON + MINUTE)
        await settle(store, probe, HandedBack(), now=NOON + MINUTE)
        assert await claim_jobs(store, 9, now=NOON + MINUTE + SECOND) == []
        assert await claim_ids(store, 9, now=NOON + 2 * MINUTE) == [job]

    async def test_probes_are_never_more_than_there_are_slots(self, store: Store) -> None:
        await provide(store, "server", slots=2)
        await set_gate(store, "server", state="open", shut_for=MINUTE, probes=5)
        await accept_all(store, 6, resources=needs("server"))
        assert len(await claim_jobs(store, 9, now=NOON + MINUTE)) == 2
        await provide(store, "server", slots=0, now=NOON + MINUTE)
        assert await claim_jobs(store, 9, now=NOON + MINUTE) == []
        await assert_sound(store)

    async def test_a_job_that_needs_more_slots_than_there_are_probes_can_probe(self, store: Store) -> None:
        await provide(store, "server", slots=4)
        await set_gate(store, "server", state="open", shut_for=MINUTE, probes=1)
        first, *_ = await accept_all(store, 3, resources=needs(server=2))
        assert await claim_jobs(store, 9) == []
        assert await claim_ids(store, 9, now=NOON + MINUTE) == [first]
        assert await used(store, "server") == 2

    async def test_a_gate_that_counts_and_is_not_shut_limits_nothing(self, store: Store) -> None:
        await set_gate(store, "server", failures=3)
        jobs = await accept_all(store, 3, resources=needs("server"))
        assert await claim_ids(store, 9) == jobs

    async def test_a_claim_says_when_a_gate_opens(self, store: Store) -> None:
        await set_gate(store, "server", state="open", shut_for=MINUTE, probes=1)
        await accept(store, resources=needs("server"))
        answer = await exchange(store, claim=Claim(worker="w1", limit=5, lease_for=LEASE), now=NOON + SECOND)
        assert answer.next_in == MINUTE - SECOND

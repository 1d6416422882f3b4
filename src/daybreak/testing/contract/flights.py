"""The cache: jobs that would compute the same run once, and what is known is not computed again.

A job with a flight is completed at once if its result is known, follows the job that computes it, or leads and runs. No
follower is ever without a leader, and no failure is ever kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from daybreak.core.flights import FIRST_TO_DROP, FOLLOWERS_PER_COMMIT, flight_cause, result_note
from daybreak.core.model import (
    Caching,
    Cancelled,
    Done,
    HandedBack,
    Job,
    JobSpec,
    Lost,
    Outcome,
    Put,
    Reason,
    Retry,
    State,
    Suspended,
)
from daybreak.policy.settle import settle as settlement_of
from daybreak.store.protocol import CacheEntry, CacheQuery, Purge, Store, Uncache, Verdict
from daybreak.testing.contract.builders import (
    DAY,
    FATAL,
    HOUR,
    LEASE,
    MINUTE,
    NOON,
    ONCE,
    OOPS,
    SECOND,
    accept,
    amend,
    assert_sound,
    claim_ids,
    claim_jobs,
    claim_one,
    configure,
    counted,
    exchange,
    find_all,
    get_job,
    jobs_of,
    kinds_of,
    needs,
    provide,
    reap,
    run_one,
    settle,
    spec,
    state_of,
    used,
    verdicts,
    waiting,
)

RESULT = b'{"thrust":41.5}'
NEW, FOLLOWS, CACHED = Verdict.NEW.value, Verdict.FOLLOWS.value, Verdict.CACHED.value
ALL = 1000


def flying(flight: str = "f", *, ttl: timedelta | None = None, size: int | None = None, **fields: Any) -> JobSpec:
    """A job of this flight."""
    return spec(flight=flight, flight_parts={"arguments": flight}, cache=Caching(ttl=ttl, size=size), **fields)


def require_cache(store: Store) -> None:
    if "cache" not in store.traits.features:
        pytest.skip(f"the store {store.traits.name} keeps no results")


async def fly(store: Store, *jobs: JobSpec, now: Any = NOON) -> list[str]:
    """Submit jobs with flights, and return their ids."""
    require_cache(store)
    answers = await store.insert(jobs, now=now)
    assert all(answer.verdict in (Verdict.NEW, Verdict.FOLLOWS, Verdict.CACHED) for answer in answers)
    return [job.id for job in jobs]


async def compute(store: Store, flight: str = "f", result: bytes = RESULT, *, now: Any = NOON, **fields: Any) -> str:
    """Run a job of this flight, so that its result is known, and return its id."""
    [job] = await fly(store, flying(flight, **fields), now=now)
    lease = await claim_one(store, now=now, job=job, queues=(fields.get("queue", "default"),))
    assert await settle(store, lease, Done(result, ran=2.0), now=now)
    return job


async def known(store: Store, *flights: str, now: Any = NOON, **query: Any) -> list[CacheEntry]:
    return (await store.cached(CacheQuery(flights=flights, **query), now=now)).entries


async def known_flights(store: Store, *, now: Any = NOON, **query: Any) -> list[str]:
    return [entry.flight for entry in await known(store, now=now, **query)]


async def assert_has_result(store: Store, job: str, source: str, result: bytes = RESULT) -> Job:
    found = await get_job(store, job)
    assert (found.state, found.result, found.cached_from) == (State.COMPLETED, result, source)
    return found


async def assert_flights_are_sound(store: Store) -> None:
    """What `assert_sound` says; and every follower waits for a job that runs or waits in its own queue."""
    await assert_sound(store)
    jobs = await jobs_of(store)
    for job in jobs:
        if job.blocked_on is not None and job.blocked_on == flight_cause(job.spec.flight or ""):
            others = (one for one in jobs if one.spec.flight == job.spec.flight and one.spec.queue == job.spec.queue)
            assert any(one.state in (State.QUEUED, State.RUNNING, State.SCHEDULED) for one in others), "nobody leads"


class KnownResults:
    async def test_a_known_result_completes_a_job_as_it_is_submitted(self, store: Store) -> None:
        source = await compute(store)
        [answer] = await store.insert([job := flying(keep_completed=HOUR)], now=NOON + SECOND)
        assert (answer.verdict, answer.job, answer.state) == (Verdict.CACHED, job.id, State.COMPLETED)
        found = await assert_has_result(store, job.id, source)
        assert (found.attempt, found.fence, found.worker, found.started_at) == (0, 0, None, None)
        assert found.finished_at == NOON + SECOND
        await assert_flights_are_sound(store)

    async def test_a_hit_tells_that_it_was_submitted_and_completed_and_from_what(self, store: Store) -> None:
        source = await compute(store)
        [job] = await fly(store, flying())
        submitted, completed = await store.history(job)
        assert (submitted.kind, submitted.state) == ("submitted", State.QUEUED)
        assert (completed.kind, completed.state, completed.by, completed.note) == (
            "completed", State.COMPLETED, "", result_note(source),
        )  # fmt: skip

    async def test_the_job_that_computed_a_result_names_no_source(self, store: Store) -> None:
        job = await get_job(store, await compute(store))
        assert (job.result, job.cached_from, job.attempt) == (RESULT, None, 1)

    async def test_a_hit_waits_for_no_queue(self, store: Store) -> None:
        source = await compute(store)
        await configure(store, paused=True, capacity=1, max_running=1)
        await fly(store, flying("other"))
        [job] = await fly(store, flying())
        await assert_has_result(store, job, source)

    async def test_a_hit_waits_for_no_resource(self, store: Store) -> None:
        source = await compute(store)
        await provide(store, "licence", slots=1, max_waiting=1)
        [holder] = await fly(store, flying("other", resources=needs("licence")))
        lease = await claim_one(store)
        assert lease.job == holder
        [job] = await fly(store, flying(resources=needs("licence")))
        await assert_has_result(store, job, source)
        assert (await used(store, "licence"), await waiting(store, "licence")) == (1, 0)

    async def test_a_hit_takes_no_room_in_a_full_queue(self, store: Store) -> None:
        await compute(store)
        await configure(store, capacity=2)
        answers = await verdicts(store, flying(), flying("a"), flying(), flying("b"), flying(), flying("c"))
        assert answers == [CACHED, NEW, CACHED, NEW, CACHED, "full"]

    async def test_a_hit_sheds_nobody(self, store: Store) -> None:
        await compute(store)
        await configure(store, capacity=1, when_full="shed")
        [victim] = await fly(store, flying("other", priority=9))
        await fly(store, flying(priority=1))
        assert await state_of(store, victim) is State.QUEUED

    async def test_a_result_that_is_nothing_is_a_result(self, store: Store) -> None:
        require_cache(store)
        await fly(store, flying())
        assert await settle(store, await claim_one(store), Done(None))
        assert await verdicts(store, flying()) == [CACHED]

    async def test_a_result_whose_time_is_over_at_once_is_for_those_who_wait(self, store: Store) -> None:
        require_cache(store)
        no_time = timedelta()
        [leader, follower] = await fly(store, flying(ttl=no_time), flying(ttl=no_time))
        assert await settle(store, await claim_one(store), Done(RESULT))
        assert [job.result for job in await store.get([leader, follower]) if job is not None] == [RESULT, RESULT]
        assert await verdicts(store, flying(ttl=no_time)) == [NEW]

    async def test_another_flight_has_another_result(self, store: Store) -> None:
        await compute(store)
        assert await verdicts(store, flying("g"), spec()) == [NEW, NEW]

    async def test_success_on_a_later_attempt_is_kept(self, store: Store) -> None:
        await fly(store, flying(retry=Retry(strategy="fixed", delay=SECOND)))
        assert await settle(store, await claim_one(store), OOPS)
        assert await settle(store, await claim_one(store, now=NOON + MINUTE), Done(RESULT), now=NOON + MINUTE)
        assert await verdicts(store, flying(), now=NOON + MINUTE) == [CACHED]

    @pytest.mark.parametrize("outcome", [FATAL, Cancelled(by="ann")])
    async def test_only_success_is_kept(self, store: Store, outcome: Outcome) -> None:
        await fly(store, flying(retry=ONCE))
        assert await settle(store, await claim_one(store), outcome)
        assert await known(store) == []
        assert await verdicts(store, flying()) == [NEW]

    async def test_a_result_that_is_not_to_be_kept_is_that_of_its_job_alone(self, store: Store) -> None:
        leader, follower = await fly(store, flying(), flying())
        assert await settle(store, await claim_one(store, job=leader), Done(b"7"), unkept=True)
        assert await known_flights(store) == []
        done, waits = await get_job(store, leader), await get_job(store, follower)
        assert (done.state, done.result, waits.state) == (State.COMPLETED, b"7", State.QUEUED)
        assert await settle(store, await claim_one(store, job=follower), Done(RESULT))
        assert await known_flights(store) == ["f"]
        await assert_flights_are_sound(store)

    async def test_a_failure_on_the_last_attempt_is_not_kept(self, store: Store) -> None:
        await fly(store, flying(retry=ONCE))
        assert await settle(store, await claim_one(store), OOPS)
        assert await known(store) == []
        assert await verdicts(store, flying()) == [NEW]

    async def test_a_hit_holds_no_unique_name(self, store: Store) -> None:
        await compute(store)
        assert await verdicts(store, flying(unique="one"), flying(unique="one"), spec(unique="one")) == [
            CACHED, CACHED, NEW,
        ]  # fmt: skip
        assert await verdicts(store, flying(unique="one")) == ["duplicate"]

    async def test_a_hit_replaces_the_job_that_has_its_unique_name(self, store: Store) -> None:
        await compute(store)
        waits = await accept(store, unique="one")
        assert await verdicts(store, flying(unique="one", on_conflict="replace")) == [CACHED]
        assert await state_of(store, waits) is State.CANCELLED

    async def test_the_key_of_a_hit_stands_for_it(self, store: Store) -> None:
        await compute(store)
        [job] = await fly(store, flying(key="k"))
        [answer] = await store.insert([flying(key="k")], now=NOON)
        assert (answer.verdict, answer.job, answer.same) == (Verdict.DUPLICATE, job, "key")

    async def test_an_insert_that_is_repeated_hits_once(self, store: Store) -> None:
        await compute(store)
        job = flying()
        assert await verdicts(store, job) == [CACHED]
        assert await verdicts(store, job) == ["duplicate"]
        [entry] = await known(store)
        assert entry.hits == 1

    async def test_hits_are_counted_with_the_time_that_they_saved(self, store: Store) -> None:
        await compute(store)
        await fly(store, flying(), flying())
        totals = await counted(store)
        assert (totals["submitted"][0], totals.get("cached"), totals["completed"][0]) == (3, (2, 4_000_000), 1)

    async def test_jobs_that_a_settlement_brings_are_hits_too(self, store: Store) -> None:
        source = await compute(store)
        await accept(store)
        job = flying()
        assert await settle(store, await claim_one(store), inserts=(job,))
        await assert_has_result(store, job.id, source)

    async def test_jobs_that_a_record_brings_are_hits_too(self, store: Store) -> None:
        source = await compute(store)
        job, other, third = flying(), flying("g"), flying("g")
        await store.put([Put(kind="k", name="n", value=b"1", inserts=(job, other, third))], now=NOON)
        await assert_has_result(store, job.id, source)
        assert (await get_job(store, third.id)).blocked_on == flight_cause("g")

    async def test_what_one_exchange_completes_its_inserts_hit(self, store: Store) -> None:
        await fly(store, flying())
        lease = await claim_one(store)
        done = settlement_of(lease, Done(RESULT), chance=0.5, by=lease.worker)
        answer = await exchange(store, settle=[done], insert=[flying()])
        assert [one.verdict for one in answer.inserted] == [Verdict.CACHED]


class DueFlights:
    """A scheduled job decides when it falls due; so does one that comes back."""

    async def test_nobody_waits_for_the_leader_of_tomorrow(self, store: Store) -> None:
        require_cache(store)
        assert await verdicts(store, flying(delay=DAY), flying(), flying()) == [NEW, NEW, FOLLOWS]

    async def test_a_scheduled_job_is_completed_when_it_falls_due(self, store: Store) -> None:
        [later] = await fly(store, flying(delay=HOUR))
        source = await compute(store)
        assert await state_of(store, later) is State.SCHEDULED
        await store.advance(now=NOON + HOUR)
        await assert_has_result(store, later, source)
        assert await kinds_of(store, later) == ["submitted", "due", "completed"]

    async def test_a_scheduled_job_follows_when_it_falls_due(self, store: Store) -> None:
        later, now = await fly(store, flying(delay=HOUR), flying())
        await store.advance(now=NOON + HOUR)
        assert (await get_job(store, later)).blocked_on == flight_cause("f")
        assert await claim_ids(store, 5, now=NOON + HOUR) == [now]

    async def test_a_scheduled_job_that_is_started_by_hand_decides_then(self, store: Store) -> None:
        [later] = await fly(store, flying(delay=HOUR))
        source = await compute(store)
        assert await amend(store, "start", later) == ["done"]
        await assert_has_result(store, later, source)

    async def test_a_resumed_job_decides_anew(self, store: Store) -> None:
        [held] = await fly(store, flying())
        await amend(store, "suspend", held)
        source = await compute(store)
        assert await state_of(store, held) is State.SUSPENDED
        await amend(store, "resume", held)
        await assert_has_result(store, held, source)
        assert await kinds_of(store, held) == ["submitted", "suspended", "resumed", "completed"]

    async def test_a_failed_job_that_is_retried_by_hand_decides_anew(self, store: Store) -> None:
        [failed] = await fly(store, flying(retry=ONCE))
        assert await settle(store, await claim_one(store), OOPS)
        source = await compute(store)
        await amend(store, "retry", failed)
        found = await assert_has_result(store, failed, source)
        assert found.failure is None
        await assert_flights_are_sound(store)

    async def test_a_completed_job_that_is_retried_by_hand_runs_again(self, store: Store) -> None:
        source = await compute(store)
        [hit] = await fly(store, flying())
        assert await amend(store, "retry", source) == ["done"]
        assert await known(store) == []
        assert await claim_ids(store, 5) == [source]
        await assert_has_result(store, hit, source)  # as before
        [again] = await jobs_of(store, states=frozenset({State.RUNNING}))
        assert (again.result, again.cached_from) == (None, None)

    async def test_a_job_that_is_retried_by_hand_while_followers_are_left_runs_again(self, store: Store) -> None:
        leader, *followers = await fly(store, *(flying() for _ in range(FOLLOWERS_PER_COMMIT + 51)))
        assert await settle(store, await claim_one(store), Done(RESULT))
        assert await amend(store, "retry", leader) == ["done"]
        assert await state_of(store, leader) is State.QUEUED
        assert await known(store) == []
        while (await store.advance(1, now=NOON)).again:
            pass
        await assert_has_result(store, followers[-1], leader)
        assert await settle(store, await claim_one(store), Done(b"2"))
        assert (await get_job(store, leader)).result == b"2"
        await assert_flights_are_sound(store)

    async def test_hits_that_are_retried_by_hand_run_once(self, store: Store) -> None:
        await compute(store)
        jobs = await fly(store, flying(), flying(), flying())
        assert await amend(store, "retry", *jobs) == ["done"] * 3
        lease = await claim_one(store)
        assert await claim_ids(store, 5) == []
        assert await settle(store, lease, Done(b"2"))
        assert [(await get_job(store, job)).result for job in jobs] == [b"2"] * 3
        await assert_flights_are_sound(store)


class Followers:
    async def test_the_same_job_waits_for_the_one_that_is_there(self, store: Store) -> None:
        require_cache(store)
        leader, follower = flying(), flying()
        answers = await store.insert([leader, follower], now=NOON)
        assert [(one.verdict, one.state) for one in answers] == [
            (Verdict.NEW, State.QUEUED), (Verdict.FOLLOWS, State.BLOCKED),
        ]  # fmt: skip
        found = await get_job(store, follower.id)
        assert found.blocked_on == flight_cause("f")
        assert [(event.kind, event.note) for event in await store.history(follower.id)] == [
            ("submitted", ""), ("blocked", flight_cause("f")),
        ]  # fmt: skip
        assert await claim_ids(store, 5) == [leader.id]
        await assert_flights_are_sound(store)

    async def test_a_running_leader_is_followed_too(self, store: Store) -> None:
        await fly(store, flying())
        lease = await claim_one(store)
        [follower] = await fly(store, flying())
        assert await state_of(store, follower) is State.BLOCKED
        assert await settle(store, lease, Done(RESULT))
        await assert_has_result(store, follower, lease.job)

    async def test_followers_are_completed_with_the_result_of_the_leader(self, store: Store) -> None:
        leader, *followers = await fly(store, *(flying() for _ in range(4)))
        assert await settle(store, await claim_one(store), Done(RESULT, ran=2.0), now=NOON + SECOND)
        for follower in followers:
            found = await assert_has_result(store, follower, leader)
            assert (found.attempt, found.finished_at) == (0, NOON + SECOND)
            assert await kinds_of(store, follower) == ["submitted", "blocked", "completed"]
        totals = await counted(store)
        assert (totals.get("followed"), totals["submitted"][0]) == ((3, 6_000_000), 4)
        await assert_flights_are_sound(store)

    async def test_a_job_of_another_queue_does_not_wait(self, store: Store) -> None:
        require_cache(store)
        await configure(store, "closed", paused=True)
        stuck, free = flying(queue="closed"), flying(queue="open")
        assert await verdicts(store, stuck, free) == [NEW, NEW]
        assert await settle(store, await claim_one(store, queues=("open", "closed")), Done(RESULT))
        await assert_has_result(store, stuck.id, free.id)  # a result is a result, whoever led
        await assert_flights_are_sound(store)

    async def test_of_two_that_run_at_once_each_keeps_its_own_result(self, store: Store) -> None:
        one, two = await fly(store, flying(queue="a"), flying(queue="b"))
        [first], [second] = [await claim_jobs(store, queues=(queue,)) for queue in ("a", "b")]
        assert await settle(store, second, Done(b"2"))
        assert await settle(store, first, Done(b"1"))
        assert [(await get_job(store, job)).result for job in (one, two)] == [b"1", b"2"]
        [entry] = await known(store)
        assert entry.job == two

    async def test_followers_take_room_in_their_queue(self, store: Store) -> None:
        require_cache(store)
        await configure(store, capacity=2)
        assert await verdicts(store, flying(), flying(), flying()) == [NEW, FOLLOWS, "full"]

    async def test_followers_need_no_resource(self, store: Store) -> None:
        await provide(store, "licence", slots=5)
        leader, *followers = await fly(store, *(flying(resources=needs("licence")) for _ in range(3)))
        assert await claim_ids(store, 5) == [leader]
        assert (await used(store, "licence"), await waiting(store, "licence")) == (1, 0)
        assert [usage.name for usage in await store.usage()] == ["licence"]
        assert len(followers) == 2

    async def test_a_leader_gets_the_priority_of_a_more_urgent_follower(self, store: Store) -> None:
        leader, rival = await fly(store, flying(priority=7), flying("other", priority=5))
        await fly(store, flying(priority=3, by="eve"))
        found = await get_job(store, leader)
        assert found.priority == 3
        assert (await store.history(leader))[-1].by == "eve"
        assert await claim_ids(store, 2) == [leader, rival]
        await assert_flights_are_sound(store)

    async def test_a_leader_gets_no_less_urgent_by_its_followers(self, store: Store) -> None:
        [leader, _] = await fly(store, flying(priority=3), flying(priority=7))
        assert (await get_job(store, leader)).priority == 3

    async def test_a_follower_that_is_made_urgent_urges_its_leader(self, store: Store) -> None:
        leader, follower = await fly(store, flying(), flying())
        await amend(store, "rerank", follower, priority=1)
        assert (await get_job(store, leader)).priority == 1

    async def test_a_running_leader_keeps_its_priority(self, store: Store) -> None:
        await fly(store, flying(priority=7))
        lease = await claim_one(store)
        await fly(store, flying(priority=1))
        assert (await get_job(store, lease.job)).priority == 7

    @pytest.mark.parametrize("action", ["cancel", "suspend"])
    async def test_a_follower_leaves_alone(self, store: Store, action: Any) -> None:
        leader, gone, stays = await fly(store, *(flying() for _ in range(3)))
        await amend(store, action, gone)
        assert await settle(store, await claim_one(store), Done(RESULT))
        assert await state_of(store, gone) in (State.CANCELLED, State.SUSPENDED)
        await assert_has_result(store, stays, leader)
        await assert_flights_are_sound(store)

    async def test_a_follower_expires_alone(self, store: Store) -> None:
        leader, short = await fly(store, flying(), flying(expires_in=MINUTE))
        await store.advance(now=NOON + MINUTE)
        assert (await get_job(store, short)).reason is Reason.EXPIRED
        assert await state_of(store, leader) is State.QUEUED

    async def test_many_followers_are_completed_in_bounded_chunks(self, store: Store) -> None:
        leader, *followers = await fly(store, *(flying() for _ in range(2 * FOLLOWERS_PER_COMMIT + 51)))
        assert await settle(store, await claim_one(store), Done(RESULT))
        assert len(await find_all(store, ALL, states=frozenset({State.BLOCKED}))) == FOLLOWERS_PER_COMMIT + 50
        assert await verdicts(store, flying()) == [CACHED]
        rounds = 0
        while (advanced := await store.advance(1, now=NOON)).again:
            assert advanced.next_in == timedelta()
            rounds += 1
        assert rounds >= 1
        assert await find_all(store, ALL, states=frozenset({State.BLOCKED})) == []
        await assert_has_result(store, followers[-1], leader)
        [entry] = await known(store)
        assert entry.hits == len(followers) + 1
        await assert_flights_are_sound(store)

    async def test_claims_complete_the_followers_that_are_left(self, store: Store) -> None:
        await fly(store, *(flying() for _ in range(FOLLOWERS_PER_COMMIT + 51)))
        assert await settle(store, await claim_one(store), Done(RESULT))
        assert await claim_ids(store, 5) == []
        assert await find_all(store, ALL, states=frozenset({State.BLOCKED})) == []

    async def test_what_is_forgotten_while_followers_are_left_still_completes_them(self, store: Store) -> None:
        leader, *followers = await fly(store, *(flying() for _ in range(FOLLOWERS_PER_COMMIT + 51)))
        assert await settle(store, await claim_one(store), Done(RESULT))
        assert (await store.uncache(Uncache(), now=NOON)).dropped == 1
        assert not (await store.uncache(Uncache(), now=NOON)).again
        assert await verdicts(store, flying()) == [NEW]
        while (await store.advance(1, now=NOON)).again:
            pass
        await assert_has_result(store, followers[-1], leader)
        assert len(await find_all(store, ALL, states=frozenset({State.QUEUED}))) == 1
        assert await known(store) == []


class Leaders:
    """A leader that leaves without a result hands over to the best-ranked follower."""

    async def led(self, store: Store, **fields: Any) -> tuple[str, str, str]:
        """A leader, a follower that is not urgent, and one that is."""
        leader, late, urgent = await fly(
            store, flying(priority=2, **fields), flying(priority=7), flying(priority=3)
        )  # fmt: skip
        return leader, late, urgent

    async def assert_handed_over(self, store: Store, late: str, urgent: str, now: Any = NOON) -> None:
        found = await get_job(store, urgent)
        assert (found.state, found.blocked_on) == (State.QUEUED, None)
        assert await kinds_of(store, urgent) == ["submitted", "blocked", "unblocked"]
        assert await state_of(store, late) is State.BLOCKED
        await assert_flights_are_sound(store)
        assert await settle(store, await claim_one(store, now=now), Done(RESULT), now=now)
        await assert_has_result(store, late, urgent)
        await assert_flights_are_sound(store)

    async def test_a_waiting_leader_that_is_cancelled_hands_over(self, store: Store) -> None:
        leader, late, urgent = await self.led(store)
        await amend(store, "cancel", leader)
        await self.assert_handed_over(store, late, urgent)

    async def test_a_running_leader_that_is_cancelled_hands_over(self, store: Store) -> None:
        leader, late, urgent = await self.led(store)
        lease = await claim_one(store)
        await amend(store, "cancel", leader)
        assert await state_of(store, urgent) is State.BLOCKED
        assert await settle(store, lease, Done(b"too late"))
        assert await known(store) == []
        await self.assert_handed_over(store, late, urgent)

    async def test_a_leader_that_fails_hands_over(self, store: Store) -> None:
        _, late, urgent = await self.led(store)
        assert await settle(store, await claim_one(store), FATAL)
        await self.assert_handed_over(store, late, urgent)

    async def test_a_leader_that_expires_hands_over(self, store: Store) -> None:
        leader, late, urgent = await self.led(store, expires_in=MINUTE)
        await store.advance(now=NOON + MINUTE)
        assert await state_of(store, leader) is State.FAILED
        await self.assert_handed_over(store, late, urgent, NOON + MINUTE)

    async def test_a_leader_that_a_claim_finds_expired_hands_over(self, store: Store) -> None:
        leader, _, urgent = await self.led(store, expires_in=MINUTE)
        claimed = await claim_ids(store, now=NOON + MINUTE) or await claim_ids(store, now=NOON + MINUTE)
        assert claimed == [urgent]
        assert await state_of(store, leader) is State.FAILED

    async def test_a_leader_that_is_shed_hands_over(self, store: Store) -> None:
        require_cache(store)
        await configure(store, capacity=2, when_full="shed")
        leader, follower = await fly(store, flying(priority=8), flying(priority=8))
        await amend(store, "rerank", follower, priority=8)
        await configure(store, capacity=1, when_full="shed")
        await amend(store, "cancel", follower)
        [urgent] = await fly(store, flying("other", priority=1))
        assert (await get_job(store, leader)).reason is Reason.SHED
        assert await claim_ids(store, 5) == [urgent]
        assert await verdicts(store, flying()) == ["full"]
        await configure(store)
        assert await verdicts(store, flying()) == [NEW]  # nobody leads any more

    async def test_a_leader_that_is_suspended_hands_over(self, store: Store) -> None:
        leader, late, urgent = await self.led(store)
        await amend(store, "suspend", leader)
        await self.assert_handed_over(store, late, urgent)
        await amend(store, "resume", leader)
        await assert_has_result(store, leader, urgent)

    async def test_a_leader_that_suspends_itself_hands_over(self, store: Store) -> None:
        _, late, urgent = await self.led(store)
        assert await settle(store, await claim_one(store), Suspended())
        await self.assert_handed_over(store, late, urgent)

    async def test_a_leader_that_is_replaced_hands_over(self, store: Store) -> None:
        _, late, urgent = await self.led(store, unique="one")
        await accept(store, unique="one", on_conflict="replace", priority=9)
        await self.assert_handed_over(store, late, urgent)

    async def test_a_leader_that_is_replaced_by_its_like_hands_over(self, store: Store) -> None:
        _, late, urgent = await self.led(store, unique="one")
        assert await verdicts(store, flying(unique="one", on_conflict="replace", priority=9)) == [FOLLOWS]
        await self.assert_handed_over(store, late, urgent)

    async def test_a_leader_that_moves_away_hands_over(self, store: Store) -> None:
        leader, late, urgent = await self.led(store)
        revision = (await get_job(store, leader)).revision
        purged = await store.purge(Purge(moved=((leader, revision),)), now=NOON)
        assert purged.moved == [True]
        await self.assert_handed_over(store, late, urgent)

    @pytest.mark.parametrize("outcome", [OOPS, HandedBack(), HandedBack(delay=MINUTE), Lost()])
    async def test_a_leader_that_runs_again_keeps_the_lead(self, store: Store, outcome: Outcome) -> None:
        leader, late, urgent = await self.led(store, retry=Retry(strategy="fixed", delay=SECOND))
        assert await settle(store, await claim_one(store), outcome)
        assert await state_of(store, urgent) is State.BLOCKED
        assert await verdicts(store, flying()) == [FOLLOWS]
        lease = await claim_one(store, now=NOON + HOUR)
        assert lease.job == leader
        assert await settle(store, lease, Done(RESULT), now=NOON + HOUR)
        for job in (late, urgent):
            await assert_has_result(store, job, leader)
        await assert_flights_are_sound(store)

    async def test_a_leader_whose_lease_was_lost_keeps_the_lead(self, store: Store) -> None:
        leader, _, urgent = await self.led(store)
        await claim_one(store)
        [taken] = await reap(store, now=NOON + LEASE)
        assert await state_of(store, urgent) is State.BLOCKED
        assert await settle(store, taken, Lost(), now=NOON + LEASE)
        assert await claim_ids(store, 5, now=NOON + HOUR) == [leader]

    async def test_a_leader_that_leaves_alone_leaves_nothing(self, store: Store) -> None:
        [leader] = await fly(store, flying())
        await amend(store, "cancel", leader)
        assert await verdicts(store, flying()) == [NEW]

    async def test_followers_that_all_fail_fail_one_by_one(self, store: Store) -> None:
        jobs = await fly(store, *(flying(retry=ONCE) for _ in range(3)))
        for job in jobs:
            assert await run_one(store, OOPS) == job
        assert [await state_of(store, job) for job in jobs] == [State.FAILED] * 3
        assert await known(store) == []
        await assert_flights_are_sound(store)

    async def test_all_of_a_flight_can_be_cancelled_at_once(self, store: Store) -> None:
        jobs = await fly(store, *(flying() for _ in range(3)))
        assert await amend(store, "cancel", *jobs) == ["done"] * 3
        assert await verdicts(store, flying()) == [NEW]
        await assert_flights_are_sound(store)


class CacheRoom:
    async def test_a_result_may_be_used_for_as_long_as_it_was_asked(self, store: Store) -> None:
        await compute(store, ttl=MINUTE)
        [entry] = await known(store)
        assert entry.until == NOON + MINUTE
        assert await verdicts(store, flying(ttl=MINUTE), now=NOON + MINUTE - SECOND) == [CACHED]
        assert await known(store, now=NOON + MINUTE) == []
        assert await verdicts(store, flying(), flying(), now=NOON + MINUTE) == [NEW, FOLLOWS]

    async def test_the_time_of_a_result_counts_from_when_it_was_known(self, store: Store) -> None:
        await fly(store, flying(ttl=MINUTE))
        lease = await claim_one(store, now=NOON + HOUR, lease_for=DAY)
        assert await settle(store, lease, Done(RESULT), now=NOON + HOUR)
        assert await verdicts(store, flying(), now=NOON + HOUR + MINUTE - SECOND) == [CACHED]

    async def test_a_result_that_is_computed_again_may_be_used_again(self, store: Store) -> None:
        old = await compute(store, ttl=MINUTE)
        new = await compute(store, "f", b"2", now=NOON + HOUR)
        [hit] = await fly(store, flying(), now=NOON + HOUR)
        await assert_has_result(store, hit, new, b"2")
        assert (await get_job(store, old)).result == RESULT

    async def test_what_was_used_longest_ago_makes_room(self, store: Store) -> None:
        now = NOON
        for flight in "abc":
            now += SECOND
            await compute(store, flight, bytes(40), now=now, size=120)
        await fly(store, flying("a"), now=now + SECOND)
        await compute(store, "d", bytes(40), now=now + 2 * SECOND, size=120)
        assert await known_flights(store, now=now + MINUTE) == ["d", "a", "c"]

    async def test_many_results_make_room_for_a_large_one(self, store: Store) -> None:
        flights = [f"f{number:02}" for number in range(3 * FIRST_TO_DROP)]
        for passed, flight in enumerate(flights):
            await compute(store, flight, bytes(10), now=NOON + passed * SECOND, size=10 * len(flights))
        await compute(store, "large", bytes(10 * len(flights) - 20), now=NOON + HOUR, size=10 * len(flights))
        assert await known_flights(store, now=NOON + HOUR) == ["large", *reversed(flights[-2:])]
        await assert_flights_are_sound(store)

    async def test_contents_to_which_a_result_refers_take_room(self, store: Store) -> None:
        for number, flight in enumerate("abc"):
            digest = f"{number}" * 64
            one = b'{"$":["file",{"sha256":"%s","size":1000,"name":"x"}]}' % digest.encode()
            result = b"[%s,%s]" % (one, one)
            await compute(store, flight, result, now=NOON + number * SECOND, size=2500)
        assert await known_flights(store, now=NOON + MINUTE) == ["c", "b"]
        [entry] = await known(store, "c")
        assert entry.size == 1000 + len(result)
        [hit] = await fly(store, flying("c"))
        await assert_has_result(store, hit, entry.job, result)

    async def test_each_task_has_its_own_room(self, store: Store) -> None:
        await compute(store, "a", bytes(100), size=100)
        await compute(store, "b", bytes(100), size=100, task="other")
        assert sorted(await known_flights(store)) == ["a", "b"]

    async def test_a_result_larger_than_the_room_is_not_kept_and_nothing_makes_room_for_it(self, store: Store) -> None:
        await compute(store, "a", bytes(40), size=100)
        big = flying("b", size=100)
        follower = flying("b", size=100)
        await fly(store, big, follower)
        assert await settle(store, await claim_one(store), Done(bytes(101)))
        assert await known_flights(store) == ["a"]
        await assert_has_result(store, follower.id, big.id, bytes(101))
        assert await verdicts(store, flying("b")) == [NEW]

    async def test_a_result_that_made_room_is_still_the_result_of_its_jobs(self, store: Store) -> None:
        source = await compute(store, "a", bytes(80), size=100)
        [hit] = await fly(store, flying("a"))
        await compute(store, "b", bytes(80), now=NOON + SECOND, size=100)
        assert await known_flights(store) == ["b"]
        assert (await get_job(store, source)).result == bytes(80)
        await assert_has_result(store, hit, source, bytes(80))
        assert [job.result for job in await jobs_of(store, queue="default")] == [bytes(80)] * 3
        [packed] = await store.pack([hit])
        assert packed is not None
        assert (packed.job.result, packed.job.cached_from) == (bytes(80), source)

    async def test_a_result_outlives_the_job_that_computed_it(self, store: Store) -> None:
        source = await compute(store, keep_completed=MINUTE)
        await store.purge(Purge(), now=NOON + HOUR)
        assert await store.get([source]) == [None]
        [hit] = await fly(store, flying(), now=NOON + HOUR)
        await assert_has_result(store, hit, source)

    async def test_a_result_outlives_the_removal_of_its_job(self, store: Store) -> None:
        source = await compute(store)
        await amend(store, "remove", source)
        [hit] = await fly(store, flying())
        await assert_has_result(store, hit, source)

    async def test_results_whose_time_is_over_are_purged(self, store: Store) -> None:
        source = await compute(store, ttl=MINUTE, keep_completed=None)
        await compute(store, "g")
        await store.purge(Purge(), now=NOON + HOUR)
        assert await known_flights(store) == ["g"]  # as of noon, the other could be used
        assert (await get_job(store, source)).result == RESULT


class Uncaching:
    async def test_an_entry_tells_what_is_known(self, store: Store) -> None:
        source = await compute(store, version=3)
        await fly(store, flying(version=3), now=NOON + SECOND)
        [entry] = await known(store, now=NOON + MINUTE)
        assert entry == CacheEntry(
            flight="f", task="work", version=3, job=source, parts={"arguments": "f"}, size=len(RESULT),
            ran=2 * SECOND, hits=1, created_at=NOON, used_at=NOON + SECOND, until=None,
        )  # fmt: skip

    async def test_entries_are_listed_most_recently_used_first_page_by_page(self, store: Store) -> None:
        for number in range(5):
            await compute(store, f"f{number}", now=NOON + number * SECOND, task="even" if number % 2 == 0 else "odd")
        listed: list[str] = []
        query = CacheQuery(limit=2)
        while True:
            page = await store.cached(query, now=NOON + MINUTE)
            assert len(page.entries) <= 2
            listed += [entry.flight for entry in page.entries]
            if page.cursor is None:
                break
            query = replace(query, cursor=page.cursor)
        assert listed == ["f4", "f3", "f2", "f1", "f0"]
        assert await known_flights(store, task="even") == ["f4", "f2", "f0"]
        assert [entry.flight for entry in await known(store, "f1", "f0", "none")] == ["f1", "f0"]

    async def test_results_are_listed_in_the_order_of_their_creation_however_they_are_used(self, store: Store) -> None:
        for number in range(5):
            await compute(store, f"f{number}", b"%d" % number, now=NOON + number * SECOND)
        listed: list[tuple[str, bytes | None]] = []
        query = CacheQuery(limit=2, results=True)
        while True:
            page = await store.cached(query, now=NOON + MINUTE)
            listed += [(entry.flight, entry.result) for entry in page.entries]
            await fly(store, flying("f4"), now=NOON + HOUR)
            if page.cursor is None:
                break
            query = replace(query, cursor=page.cursor)
        assert listed == [(f"f{number}", b"%d" % number) for number in range(5)]
        assert [entry.result for entry in await known(store, "f1", "f3", results=True)] == [b"1", b"3"]
        assert [entry.result for entry in await known(store, "f1")] == [None]

    async def test_a_flight_without_a_result_is_not_listed(self, store: Store) -> None:
        await fly(store, flying())
        assert await known(store) == []

    async def test_what_is_forgotten_runs_again(self, store: Store) -> None:
        source = await compute(store)
        await compute(store, "g")
        uncached = await store.uncache(Uncache(flights=("f", "none")), now=NOON)
        assert (uncached.dropped, uncached.again) == (1, False)
        assert await known_flights(store) == ["g"]
        assert (await get_job(store, source)).result == RESULT
        assert await verdicts(store, flying(), flying("g")) == [NEW, CACHED]

    async def test_the_results_of_a_task_are_forgotten_chunk_by_chunk(self, store: Store) -> None:
        for number in range(5):
            await compute(store, f"f{number}")
        await compute(store, "g", task="other")
        answers = [await store.uncache(Uncache(task="work", limit=2), now=NOON) for _ in range(3)]
        assert [(answer.dropped, answer.again) for answer in answers] == [(2, True), (2, True), (1, False)]
        assert await known_flights(store) == ["g"]
        assert (await store.uncache(Uncache(), now=NOON)).dropped == 1

    async def test_who_follows_when_results_are_forgotten_still_gets_one(self, store: Store) -> None:
        leader, follower = await fly(store, flying(), flying())
        assert (await store.uncache(Uncache(flights=("f",)), now=NOON)).dropped == 0
        assert await settle(store, await claim_one(store), Done(RESULT))
        await assert_has_result(store, follower, leader)

    async def test_a_forgotten_result_lives_until_no_job_has_it(self, store: Store) -> None:
        source = await compute(store, keep_completed=MINUTE)
        [hit] = await fly(store, flying(keep_completed=HOUR))
        await store.uncache(Uncache(), now=NOON)
        await store.purge(Purge(), now=NOON + MINUTE)
        assert await store.get([source]) == [None]
        await assert_has_result(store, hit, source)
        await store.purge(Purge(), now=NOON + HOUR)
        assert await store.get([hit]) == [None]

    async def test_a_moved_job_brings_its_result_and_where_it_is_from(self, store: Store) -> None:
        source = await compute(store)
        [hit, waits] = await fly(store, flying(), flying("g"))
        packed = [one for one in await store.pack([hit, waits]) if one is not None]
        revisions = tuple((one.job.id, one.job.revision) for one in packed)
        assert (await store.purge(Purge(moved=revisions), now=NOON)).moved == [True, True]
        await store.adopt(packed, by="mover", now=NOON)
        await assert_has_result(store, hit, source)
        assert await verdicts(store, flying("g")) == [FOLLOWS]
        await assert_flights_are_sound(store)

    async def test_a_follower_that_arrives_decides_anew(self, store: Store) -> None:
        leader, follower = await fly(store, flying(), flying())
        [packed] = await store.pack([follower])
        assert packed is not None
        await store.purge(Purge(moved=((follower, packed.job.revision),)), now=NOON)
        assert await settle(store, await claim_one(store), Done(RESULT))
        await store.adopt([packed], by="mover", now=NOON)
        await assert_has_result(store, follower, leader)

"""Promise 3: claims follow rank."""

from __future__ import annotations

from daybreak.core.model import HandedBack, Suspended
from daybreak.core.rank import passed_over_for
from daybreak.store.protocol import Filter, Position, Store
from daybreak.testing.contract.builders import (
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    accept,
    accept_all,
    amend,
    claim_ids,
    claim_jobs,
    claim_one,
    configure,
    find_all,
    run_one,
    settle,
)


class Order:
    async def test_the_most_urgent_priority_is_claimed_first(self, store: Store) -> None:
        jobs = {priority: await accept(store, priority=priority) for priority in (5, 10, 0, 7, 2)}
        assert await claim_ids(store, 9) == [jobs[0], jobs[2], jobs[5], jobs[7], jobs[10]]

    async def test_one_priority_is_first_in_first_out(self, store: Store) -> None:
        jobs = await accept_all(store, 3) + await accept_all(store, 3)
        assert await claim_ids(store, 2) + await claim_ids(store, 1) + await claim_ids(store, 9) == jobs

    async def test_first_in_first_out_goes_by_sequence_and_not_by_a_clock(self, store: Store) -> None:
        early = await accept(store, now=NOON)
        late = await accept(store, now=NOON - HOUR)
        assert await claim_ids(store, 2, now=NOON + HOUR) == [early, late]

    async def test_tasks_and_versions_of_a_queue_share_one_order(self, store: Store) -> None:
        said = [("a", 1, 5), ("b", 1, 5), ("a", 2, 5), ("a", 1, 5), ("b", 1, 2), ("c", 1, 7), ("a", 1, 7)]
        jobs = [await accept(store, task, version=version, priority=at) for task, version, at in said]
        assert await claim_ids(store, 9) == [jobs[n] for n in (4, 0, 1, 2, 3, 5, 6)]

    async def test_a_claim_takes_no_more_than_its_limit(self, store: Store) -> None:
        await accept_all(store, 5)
        assert [len(await claim_jobs(store, limit)) for limit in (0, 3, 3, 3)] == [0, 3, 2, 0]

    async def test_a_job_that_comes_back_stands_where_it_stood(self, store: Store) -> None:
        first, second, third = await accept_all(store, 3)
        for outcome in (HandedBack(), Suspended()):
            assert await run_one(store, outcome) == first
            await amend(store, "resume", first)
            assert await find_all(store, states=frozenset({"queued"})) == [first, second, third]

    async def test_a_job_that_fell_due_stands_by_its_sequence(self, store: Store) -> None:
        delayed = await accept(store, delay=MINUTE)
        plain = await accept(store)
        assert await claim_ids(store, 9, now=NOON + MINUTE) == [delayed, plain]

    async def test_a_reprioritised_job_stands_by_its_original_arrival(self, store: Store) -> None:
        first, second = await accept_all(store, 2, priority=7)
        other = await accept(store, priority=5)
        assert await amend(store, "rerank", first, priority=5) == ["done"]
        assert await claim_ids(store, 9) == [first, other, second]

    async def test_a_claim_takes_only_from_the_queues_it_names(self, store: Store) -> None:
        mail = await accept(store, queue="mail")
        await accept(store)
        assert await claim_ids(store, 9, queues=("mail",)) == [mail]
        assert await claim_ids(store, 9, queues=("none",)) == []


class Turns:
    async def test_the_most_urgent_priority_goes_first_over_several_queues(self, store: Store) -> None:
        await configure(store, "a", weight=9)
        low = await accept_all(store, 3, queue="a", priority=7)
        high = await accept_all(store, 3, queue="b", priority=2)
        assert await claim_ids(store, 6, queues=("a", "b")) == high + low

    async def test_equally_urgent_queues_take_turns(self, store: Store) -> None:
        a, b = await accept_all(store, 3, queue="a"), await accept_all(store, 3, queue="b")
        assert await claim_ids(store, 6, queues=("a", "b")) == [a[0], b[0], a[1], b[1], a[2], b[2]]

    async def test_turns_between_queues_follow_their_weights(self, store: Store) -> None:
        await configure(store, "a", weight=3)
        await accept_all(store, 20, queue="a")
        await accept_all(store, 20, queue="b")
        leases = await claim_jobs(store, 20, queues=("b", "a"))
        assert [lease.spec.queue for lease in leases].count("a") == 15
        for start in range(0, 20, 4):  # and not only in the long run
            assert [lease.spec.queue for lease in leases[start : start + 4]].count("a") == 3

    async def test_turns_go_on_from_what_was_served_before(self, store: Store) -> None:
        await configure(store, "a", weight=2)
        await accept_all(store, 9, queue="a")
        await accept_all(store, 9, queue="b")
        served = {"a": 0, "b": 0}
        for _ in range(9):
            [lease] = await claim_jobs(store, queues=("a", "b"), served=(served["a"], served["b"]))
            served[lease.spec.queue] += 1
        assert served == {"a": 6, "b": 3}

    async def test_an_empty_or_closed_queue_gives_its_turns_away(self, store: Store) -> None:
        await configure(store, "a", weight=9, paused=True)
        await accept(store, queue="a")
        b = await accept_all(store, 2, queue="b")
        assert await claim_ids(store, 9, queues=("a", "b", "empty")) == b


class Aging:
    async def test_aging_passes_a_job_over_only_within_the_stated_bound(self, store: Store) -> None:
        await configure(store, discipline="aging", patience=MINUTE)
        bound = passed_over_for(MINUTE, priority=5, by=2)
        patient = await accept(store, priority=5, now=NOON)
        within = await accept(store, priority=2, now=NOON + bound - SECOND)
        beyond = await accept(store, priority=2, now=NOON + bound + SECOND)
        assert await claim_ids(store, 9, now=NOON + HOUR) == [within, patient, beyond]

    async def test_without_aging_the_more_urgent_job_always_goes_first(self, store: Store) -> None:
        patient = await accept(store, priority=5, now=NOON)
        urgent = await accept(store, priority=4, now=NOON + HOUR)
        assert await claim_ids(store, 9, now=NOON + HOUR) == [urgent, patient]

    async def test_an_aged_queue_counts_as_more_urgent_beside_others(self, store: Store) -> None:
        await configure(store, "old", discipline="aging", patience=MINUTE)
        old = await accept(store, queue="old", priority=7, now=NOON)
        new = await accept(store, queue="new", priority=5, now=NOON)
        assert (await claim_one(store, queues=("old", "new"), now=NOON)).job == new
        new = await accept(store, queue="new", priority=5, now=NOON + HOUR)
        assert await claim_ids(store, 2, queues=("new", "old"), now=NOON + HOUR) == [old, new]

    async def test_a_new_discipline_takes_hold_by_re_ranking(self, store: Store) -> None:
        patient = await accept(store, priority=5, now=NOON)
        urgent = await accept(store, priority=4, now=NOON + HOUR)
        await configure(store, discipline="aging", patience=MINUTE)
        assert await amend(store, "rerank", patient, urgent, now=NOON + HOUR) == ["done", "done"]
        assert await find_all(store, states=frozenset({"queued"})) == [patient, urgent]
        await configure(store)
        assert await amend(store, "rerank", patient, urgent, now=NOON + HOUR) == ["done", "done"]
        assert await claim_ids(store, 9, now=NOON + HOUR) == [urgent, patient]
        assert [event.kind for event in await store.history(patient)] == ["submitted", "started"]

    async def test_a_job_that_comes_back_stands_by_the_present_discipline(self, store: Store) -> None:
        released, retried = await accept_all(store, 2, priority=5)
        lease, other = await claim_jobs(store, 2)
        await settle(store, other)
        await configure(store, discipline="aging", patience=MINUTE)
        later = await accept(store, priority=2, now=NOON + HOUR)
        await settle(store, lease, HandedBack(), now=NOON + HOUR)
        await amend(store, "retry", retried, now=NOON + HOUR)
        assert await claim_ids(store, 9, now=NOON + HOUR) == [released, retried, later]


class Positions:
    async def test_position_counts_the_jobs_that_are_claimed_before(self, store: Store) -> None:
        jobs = [await accept(store, task, priority=at) for task, at in (("a", 5), ("b", 7), ("a", 2), ("c", 5))]
        await accept(store, queue="other", priority=0)
        await accept(store, delay=MINUTE, priority=0)
        assert [await store.position(job) for job in jobs] == [Position(1), Position(3), Position(0), Position(2)]
        assert await claim_ids(store, 1) == [jobs[2]]
        assert await store.position(jobs[1]) == Position(2)

    async def test_only_queued_jobs_have_a_position(self, store: Store) -> None:
        running, suspended = await accept_all(store, 2)
        lease = await claim_one(store)
        await amend(store, "suspend", suspended)
        delayed = await accept(store, delay=MINUTE)
        for job in (running, suspended, delayed, "nobody"):
            assert await store.position(job) is None
        await settle(store, lease, HandedBack())
        assert await store.position(running) == Position(0)

    async def test_counting_and_finding_agree_with_the_order_of_claims(self, store: Store) -> None:
        jobs = [await accept(store, priority=at) for at in (9, 3, 9, 5, 0, 3)]
        listed = await find_all(store, states=frozenset({"queued"}), limit=2)
        assert sorted(listed) == sorted(jobs)
        assert [(await store.position(job)) for job in listed] == [Position(n) for n in range(6)]
        assert sum(tally.n for tally in await store.count(Filter(priority=3))) == 2
        assert await claim_ids(store, 9) == listed

    async def test_a_queue_named_twice_is_one_queue(self, store: Store) -> None:
        jobs = await accept_all(store, 3)
        assert await claim_ids(store, 9, queues=("default", "default")) == jobs

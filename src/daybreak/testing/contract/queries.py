"""Queries: pages never skip or repeat a job, and every filter selects the right jobs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec.structs import astuple

from daybreak.core.model import State
from daybreak.store.protocol import Filter, Query, Store
from daybreak.testing.contract.builders import (
    FATAL,
    HOUR,
    MINUTE,
    NOON,
    accept,
    accept_all,
    amend,
    claim_one,
    find_all,
    get_job,
    jobs_of,
    run_one,
)

QUEUED = frozenset({State.QUEUED})


class Queries:
    async def test_jobs_are_listed_newest_first(self, store: Store) -> None:
        jobs = await accept_all(store, 3)
        assert await find_all(store) == jobs[::-1]
        assert await find_all(store, states=frozenset({State.QUEUED, State.RUNNING})) == jobs[::-1]

    async def test_queued_jobs_alone_are_listed_in_the_order_of_claims(self, store: Store) -> None:
        low, high, middle = [await accept(store, priority=at) for at in (9, 0, 5)]
        assert await find_all(store, states=QUEUED) == [high, middle, low]

    async def test_scheduled_jobs_alone_are_listed_as_they_fall_due(self, store: Store) -> None:
        jobs = [await accept(store, delay=3 * MINUTE), await accept(store, run_at=NOON + MINUTE)]
        jobs += await accept_all(store, 2, delay=2 * MINUTE)
        listed = await find_all(store, states=frozenset({State.SCHEDULED}), limit=1)
        assert listed == [jobs[1], jobs[2], jobs[3], jobs[0]]

    async def test_paging_never_skips_or_repeats_a_job(self, store: Store) -> None:
        jobs = [await accept(store, priority=n % 3, delay=None if n % 2 else (9 - n) * MINUTE) for n in range(14)]
        for states in (frozenset[State](), QUEUED, frozenset({State.SCHEDULED})):
            whole = await find_all(store, states=states)
            assert set(whole) <= set(jobs)
            for limit in (1, 2, 3, 7):
                assert await find_all(store, limit, states=states) == whole

    async def test_paging_goes_on_while_jobs_come_and_go(self, store: Store) -> None:
        for states in (frozenset[State](), QUEUED):
            jobs = await accept_all(store, 8)
            page = await store.find(Query(limit=3, cursor=None, filter=Filter(states=states)))
            seen = [job.id for job in page.jobs]
            await amend(store, "cancel", seen[0], page.jobs[-1].id)  # the very job the cursor stands on goes, too
            await amend(store, "remove", seen[0], page.jobs[-1].id)
            await accept(store, priority=10)
            while page.cursor is not None:
                page = await store.find(Query(limit=3, cursor=page.cursor, filter=Filter(states=states)))
                seen += [job.id for job in page.jobs]
            assert len(seen) == len(set(seen))
            assert set(jobs) <= set(seen)
            for job in await find_all(store):
                await amend(store, "cancel", job)
                await amend(store, "remove", job)

    async def test_a_page_shows_the_same_job_as_get(self, store: Store) -> None:
        await accept_all(store, 3, owner="ann", tags=("x",))
        await accept(store, delay=MINUTE)
        await run_one(store, FATAL)
        await claim_one(store)
        jobs = await jobs_of(store)
        assert jobs == [await get_job(store, job.id) for job in jobs]

    async def test_every_filter_means_what_it_says(self, store: Store) -> None:
        said: dict[str, Any] = {"queue": "q", "task": "t", "run": "r", "owner": "o", "key": "k"}
        for field, value in said.items():
            job = await accept(store, **{field: value})
            await accept(store, **{field: value + "2"})
            assert await find_all(store, 100, **{field: value}) == [job], field
            assert await find_all(store, 100, **{field: "none"}) == []

    async def test_filters_by_state_reason_priority_and_tag(self, store: Store) -> None:
        failed, running, tagged = await accept(store), await accept(store), await accept(store, tags=("x", "y"))
        assert await run_one(store, FATAL) == failed
        assert (await claim_one(store)).job == running
        await amend(store, "rerank", tagged, priority=3)
        assert await find_all(store, states=frozenset({State.FAILED})) == [failed]
        assert await find_all(store, states=frozenset({State.RUNNING, State.FAILED})) == [running, failed]
        assert await find_all(store, reason="error") == [failed]
        assert await find_all(store, reason="expired") == []
        assert await find_all(store, priority=3) == [tagged]
        assert await find_all(store, priority=5) == [running, failed]
        assert await find_all(store, tag="y") == [tagged]
        assert await find_all(store, tag="z") == []

    async def test_filters_are_joined_by_and(self, store: Store) -> None:
        both = await accept(store, owner="ann", queue="mail", run="r")
        await accept(store, owner="ann", run="r")
        await accept(store, owner="bob", queue="mail")
        assert await find_all(store, owner="ann", queue="mail", run="r", states=QUEUED) == [both]
        assert await find_all(store, owner="bob", run="r") == []

    async def test_the_count_of_a_run_equals_a_recount_in_every_state(self, store: Store) -> None:
        async def counted(**where: Any) -> dict[tuple[str, str, int, int, str], int]:
            tallies = await store.count(Filter(**where))
            assert tallies == sorted(tallies)
            return {(*astuple(tally)[:4], tally.state.value): tally.n for tally in tallies}

        async def recounted(**where: Any) -> dict[tuple[str, str, int, int, str], int]:
            return Counter(
                (job.spec.queue, job.spec.task, job.spec.version, job.priority, job.state.value)
                for job in await jobs_of(store, **where)
            )

        for field in ("run", "owner"):
            said: dict[str, Any] = {field: "r"}
            other: dict[str, Any] = {field: "other"}
            await accept(store, **other)
            failed, done, cancelled, suspended = [await accept(store, priority=0, **said) for _ in range(4)]
            await amend(store, "cancel", cancelled)
            await amend(store, "suspend", suspended)
            assert await run_one(store, FATAL) == failed
            assert await run_one(store) == done
            running = await accept(store, priority=0, **said)
            assert (await claim_one(store)).job == running
            await accept(store, delay=HOUR, **said)
            await accept(store, queue="mail", priority=7, version=2, **said)
            waiting = await accept(store, **said)
            await amend(store, "rerank", waiting, priority=9)
            whole = await recounted(**said)
            assert {cell[-1] for cell in whole} == set(State) - {State.BLOCKED}
            assert await counted(**said) == whole
            for more in (
                {"states": QUEUED},
                {"states": frozenset({State.RUNNING, State.COMPLETED})},
                {"reason": "error"},
                {"reason": "expired"},
                {"queue": "mail"},
                {"task": "none"},
                {"priority": 9},
                {"tag": "x"},
            ):
                assert await counted(**said, **more) == await recounted(**said, **more), more
            assert await counted(run="none") == {}
            await amend(store, "cancel", running)

    async def test_reading_changes_nothing(self, store: Store) -> None:
        job = await accept(store, delay=MINUTE)
        await accept(store, expires_in=MINUTE)
        before = await get_job(store, job), (await store.events()).cursor
        await find_all(store)
        await store.count()
        await store.position(job)
        await store.history(job)
        await store.records("queue")
        assert (await get_job(store, job), (await store.events()).cursor) == before
        assert (await store.advance(now=NOON + HOUR)).due == 1

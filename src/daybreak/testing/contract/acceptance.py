"""Promise 1: an accepted job is never lost; it is in exactly one state."""

from __future__ import annotations

import asyncio
from datetime import timedelta, timezone

from daybreak.core.model import FINAL, Options, Retry, State
from daybreak.store.protocol import Store, Verdict
from daybreak.testing.contract.builders import (
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    accept,
    accept_all,
    amend,
    assert_sound,
    claim_jobs,
    claim_one,
    configure,
    find_all,
    get_job,
    settle,
    spec,
    verdicts,
)


class Acceptance:
    async def test_an_accepted_job_is_kept_word_for_word(self, store: Store) -> None:
        elsewhere = timezone(timedelta(hours=-7))
        said = spec(
            "report", args=b'{"n":1}', queue="mail", version=3, priority=2, by="ann", run_at=(NOON + HOUR).astimezone(
                elsewhere
            ), key="k", unique="u", on_conflict="raise", run="sweep", owner="ann", tags=("a", "b"),
            meta={"für": "später"}, trace="00-1-2-01", timeout=MINUTE, expires_in=HOUR, keep_failed=None,
            retry=Retry(strategy="linear", attempts=9, transient=("Flaky",)),
        )  # fmt: skip
        await store.insert([said], now=NOON)
        assert (await get_job(store, said.id)).spec == said

    async def test_a_new_job_waits_with_nothing_charged(self, store: Store) -> None:
        job = await get_job(store, await accept(store, by="ann"))
        assert (job.state, job.attempt, job.fence, job.revision) == (State.QUEUED, 0, 0, 1)
        assert (job.created_at, job.run_at, job.worker, job.finished_at) == (NOON, None, None, None)

    async def test_arguments_come_back_byte_for_byte(self, store: Store) -> None:
        args = bytes(range(256)) * 4096
        job = await accept(store, args=args)
        assert (await get_job(store, job)).spec.args == args
        assert (await claim_one(store)).spec.args == args

    async def test_a_job_carries_its_trace_to_whoever_runs_it(self, store: Store) -> None:
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        job = await accept(store, trace=trace)
        assert (await get_job(store, job)).spec.trace == trace
        assert (await claim_one(store)).spec.trace == trace

    async def test_jobs_with_different_options_keep_their_own(self, store: Store) -> None:
        short = await accept(store, timeout=SECOND)
        adaptive = Options(timeout=SECOND, adaptive=True, escalate=2.0, escalate_after=3)
        follows = await accept(store, options=adaptive)
        plain = await accept(store)
        assert (await get_job(store, short)).spec.options == Options(timeout=SECOND)
        assert (await get_job(store, follows)).spec.options == adaptive
        assert (await get_job(store, plain)).spec.options == Options()
        assert [lease.spec.options for lease in await claim_jobs(store, 3)] == [
            Options(timeout=SECOND),
            adaptive,
            Options(),
        ]

    async def test_submitting_the_same_id_twice_is_one_job(self, store: Store) -> None:
        job = spec()
        [first] = await store.insert([job], now=NOON)
        [again] = await store.insert([job], now=NOON + HOUR)
        assert (again.verdict, again.job, again.seq) == (Verdict.DUPLICATE, job.id, first.seq)
        assert len(await claim_jobs(store, 9)) == 1

    async def test_the_same_id_twice_in_one_batch_is_one_job(self, store: Store) -> None:
        job = spec()
        assert await verdicts(store, job, job) == ["new", "duplicate"]
        assert await find_all(store) == [job.id]

    async def test_one_bad_item_sinks_no_other_in_a_batch(self, store: Store) -> None:
        await configure(store, "small", capacity=1)
        held = await accept(store, key="k", unique="u")
        good, last = spec(), spec()
        answers = await store.insert(
            [
                good,
                spec(id=held),
                spec(key="k", args=b'{"other":1}'),
                spec(unique="u", on_conflict="refuse"),
                spec(queue="small"),
                spec(queue="small"),
                last,
            ],
            now=NOON,
        )
        assert [a.verdict.value for a in answers] == ["new", "duplicate", "conflict", "conflict", "new", "full", "new"]
        assert [a.job for a in answers[1:4]] == [held] * 3
        assert {good.id, last.id} <= set(await find_all(store))

    async def test_a_refused_job_leaves_no_trace(self, store: Store) -> None:
        await configure(store, capacity=0)
        job = spec(key="k", unique="u")
        assert await verdicts(store, job) == ["full"]
        assert await store.get([job.id]) == [None]
        assert await store.history(job.id) == []
        await configure(store)
        assert await verdicts(store, job) == ["new"]

    async def test_sequence_numbers_rise_in_the_order_of_acceptance(self, store: Store) -> None:
        answers = await store.insert([spec() for _ in range(5)], now=NOON)
        answers += await store.insert([spec() for _ in range(5)], now=NOON - HOUR)
        sequence = [answer.seq for answer in answers]
        assert sequence == sorted(set(sequence))

    async def test_jobs_are_answered_in_the_order_asked_and_unknown_ones_are_none(self, store: Store) -> None:
        first, second = await accept_all(store, 2)
        found = await store.get([second, "nobody", first, second])
        assert [job and job.id for job in found] == [second, None, first, second]
        assert await store.get([]) == []

    async def test_concurrent_submissions_are_all_accepted_once(self, store: Store) -> None:
        jobs = [spec() for _ in range(20)]
        answers = await asyncio.gather(*(store.insert([job], now=NOON) for job in jobs + jobs))
        assert sorted(a.verdict.value for [a] in answers) == ["duplicate"] * 20 + ["new"] * 20
        assert sorted(await find_all(store)) == sorted(job.id for job in jobs)

    async def test_concurrent_claims_never_share_a_job(self, store: Store) -> None:
        jobs = await accept_all(store, 30)
        claims = await asyncio.gather(*(claim_jobs(store, 4, worker=f"w{n}") for n in range(10)))
        assert sorted(lease.job for leases in claims for lease in leases) == sorted(jobs)

    async def test_every_job_is_in_exactly_one_state_and_ends_in_a_final_one(self, store: Store) -> None:
        jobs = await accept_all(store, 4) + [await accept(store, delay=MINUTE), await accept(store, priority=0)]
        await amend(store, "suspend", jobs[3])
        await amend(store, "cancel", jobs[2])
        leases = await claim_jobs(store, 2)
        assert sum(tally.n for tally in await store.count()) == len(jobs)
        await assert_sound(store, jobs)
        await amend(store, "resume", jobs[3])
        for lease in leases + await claim_jobs(store, 9, now=NOON + HOUR):
            assert await settle(store, lease, now=NOON + HOUR)
        assert {(await get_job(store, job)).state for job in jobs} <= FINAL
        await assert_sound(store, jobs)

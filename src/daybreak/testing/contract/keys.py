"""Promise 7: one idempotency key, one job; and unique names, held by one unfinished job at a time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

from msgspec.structs import replace

from daybreak.core.model import Failed, Failure, State
from daybreak.store.protocol import Amend, Filter, KnownKey, Purge, Store, Verdict
from daybreak.testing.contract.builders import (
    DAY,
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    accept,
    amend,
    assert_sound,
    claim_ids,
    claim_one,
    configure,
    find_all,
    get_job,
    run_one,
    settle,
    spec,
    state_of,
    verdicts,
)

OTHER = b'{"other":1}'
WAITING_ONCE: Final[dict[str, Any]] = {"unique": "u", "unique_while": "waiting"}


class Keys:
    async def test_same_key_with_same_content_is_one_job(self, store: Store) -> None:
        job = await accept(store, key="k")
        [again] = await store.insert([spec(key="k")], now=NOON + DAY)
        assert (again.verdict, again.job, again.state) == (Verdict.DUPLICATE, job, State.QUEUED)
        assert await find_all(store) == [job]

    async def test_same_key_with_other_content_is_a_conflict(self, store: Store) -> None:
        job = await accept(store, key="k")
        [answer] = await store.insert([spec(key="k", args=OTHER)], now=NOON)
        assert (answer.verdict, answer.job) == (Verdict.CONFLICT, job)
        assert await find_all(store) == [job]

    async def test_the_same_key_twice_in_one_batch_is_one_job(self, store: Store) -> None:
        assert await verdicts(store, spec(key="k"), spec(key="k"), spec(key="k", args=OTHER)) == [
            "new", "duplicate", "conflict",
        ]  # fmt: skip

    async def test_concurrent_submissions_of_one_key_are_one_job(self, store: Store) -> None:
        answers = await asyncio.gather(*(store.insert([spec(key="k")], now=NOON) for _ in range(12)))
        assert len({answer.job for [answer] in answers}) == 1
        assert [answer.verdict for [answer] in answers].count(Verdict.NEW) == 1

    async def test_a_key_stands_for_its_job_after_the_end_too(self, store: Store) -> None:
        job = await accept(store, key="k")
        await run_one(store)
        [answer] = await store.insert([spec(key="k")], now=NOON)
        assert (answer.verdict, answer.job, answer.state) == (Verdict.DUPLICATE, job, State.COMPLETED)

    async def test_removing_a_job_frees_its_key(self, store: Store) -> None:
        job = await accept(store, key="k")
        await amend(store, "cancel", job)
        await amend(store, "remove", job, now=NOON + HOUR)
        assert (await store.purge(Purge(keys_for=timedelta()), now=NOON + HOUR)).keys == 0
        new = spec(key="k", args=OTHER)
        assert await verdicts(store, new, now=NOON + HOUR) == ["new"]
        [again] = await store.insert([replace(new, id="job-again")], now=NOON + HOUR)
        assert (again.verdict, again.job) == (Verdict.DUPLICATE, new.id)

    async def test_removing_jobs_by_filter_frees_their_keys(self, store: Store) -> None:
        for key in ("k", "l"):
            await accept(store, key=key, tags=("t",))
            await run_one(store)
        await store.amend(Amend(action="remove", by="ann", filter=Filter(tag="t")), now=NOON)
        assert await verdicts(store, spec(key="k"), spec(key="l")) == ["new", "new"]

    async def test_removing_a_job_frees_every_key_it_answers_for(self, store: Store) -> None:
        first = spec(unique="u", key="k")
        assert await verdicts(store, first, spec(unique="u", key="l"), spec(unique="u", key="m")) == [
            "new", "duplicate", "duplicate",
        ]  # fmt: skip
        await run_one(store)
        await amend(store, "remove", first.id)
        assert await verdicts(store, spec(key="k"), spec(key="l"), spec(key="m")) == ["new", "new", "new"]

    async def test_a_purged_job_leaves_its_key_spent(self, store: Store) -> None:
        job = await accept(store, key="k", keep_completed=MINUTE)
        await run_one(store)
        assert (await store.purge(Purge(), now=NOON + HOUR)).jobs == 1
        assert await store.get([job]) == [None]
        [answer] = await store.insert([spec(key="k")], now=NOON + HOUR)
        assert (answer.verdict, answer.job, answer.state, answer.seq) == (Verdict.SPENT, job, None, 0)
        assert answer.same == "key"
        assert await find_all(store) == []
        assert await find_all(store, key="k") == []

    async def test_a_spent_key_with_other_content_is_a_conflict(self, store: Store) -> None:
        job = await accept(store, key="k", keep_completed=MINUTE)
        await run_one(store)
        await store.purge(Purge(), now=NOON + HOUR)
        [answer] = await store.insert([spec(key="k", args=OTHER)], now=NOON + HOUR)
        assert (answer.verdict, answer.job, answer.state) == (Verdict.CONFLICT, job, None)

    async def test_a_spent_key_is_free_a_day_after_its_submit_also_before_a_purge(self, store: Store) -> None:
        await accept(store, key="k", keep_completed=MINUTE)
        await run_one(store, now=NOON + HOUR)
        await store.purge(Purge(), now=NOON + 2 * HOUR)
        assert await verdicts(store, spec(key="k"), now=NOON + DAY - SECOND) == ["spent"]
        new = spec(key="k", args=OTHER)
        assert await verdicts(store, new, now=NOON + DAY) == ["new"]
        assert (await store.purge(Purge(), now=NOON + DAY + HOUR)).keys == 0
        [again] = await store.insert([replace(new, id="job-again")], now=NOON + DAY + HOUR)
        assert (again.verdict, again.job) == (Verdict.DUPLICATE, new.id)

    async def test_the_record_of_a_spent_key_goes_when_its_time_is_over(self, store: Store) -> None:
        await accept(store, key="k", keep_completed=MINUTE)
        await run_one(store)
        assert (await store.purge(Purge(), now=NOON + HOUR)).keys == 0
        assert (await store.purge(Purge(), now=NOON + DAY - SECOND)).keys == 0
        assert (await store.purge(Purge(), now=NOON + DAY)).keys == 1
        assert await verdicts(store, spec(key="k", args=OTHER), now=NOON + DAY) == ["new"]

    async def test_a_job_purged_later_than_that_leaves_no_key(self, store: Store) -> None:
        await accept(store, key="k", keep_completed=MINUTE)
        await run_one(store)
        purged = await store.purge(Purge(), now=NOON + DAY)
        assert (purged.jobs, purged.keys) == (1, 1)
        assert await verdicts(store, spec(key="k"), now=NOON + DAY) == ["new"]

    async def test_a_key_is_spent_from_the_submit_under_it_on(self, store: Store) -> None:
        holder = await accept(store, unique="u", keep_completed=MINUTE)
        asked = spec(unique="u", key="k")
        assert await verdicts(store, asked, now=NOON + HOUR) == ["duplicate"]
        await run_one(store, now=NOON + HOUR)
        await store.purge(Purge(), now=NOON + 3 * HOUR)
        [answer] = await store.insert([asked], now=NOON + DAY)
        assert (answer.verdict, answer.job) == (Verdict.SPENT, holder)
        assert await verdicts(store, asked, now=NOON + DAY + HOUR) == ["new"]

    async def test_each_of_a_batch_answers_for_itself_also_by_a_spent_key(self, store: Store) -> None:
        await accept(store, key="k", keep_completed=MINUTE)
        await run_one(store)
        await store.purge(Purge(), now=NOON + HOUR)
        batch = [spec(key="l"), spec(key="k"), spec(), spec(key="k", args=OTHER), spec(key="l")]
        assert await verdicts(store, *batch, now=NOON + HOUR) == ["new", "spent", "new", "conflict", "duplicate"]

    async def test_what_keys_stand_for_can_be_looked_up(self, store: Store) -> None:
        assert await store.known_keys([], now=NOON) == []
        gone = await accept(store, key="gone", keep_completed=MINUTE)
        await run_one(store)
        job = await accept(store, key="k", now=NOON)
        await store.purge(Purge(), now=NOON + HOUR)
        digest = spec(key="k").digest
        spent, known = KnownKey(gone, digest, is_spent=True), KnownKey(job, digest)
        assert await store.known_keys(["k", "free", "gone", "k"], now=NOON + HOUR) == [known, None, spent, known]
        assert await store.known_keys(["gone", "k"], now=NOON + DAY) == [None, known]
        await amend(store, "cancel", job)
        await amend(store, "remove", job)
        assert await store.known_keys(["k"], now=NOON + HOUR) == [None]

    async def test_a_key_says_by_what_code_its_job_was_submitted(self, store: Store) -> None:
        asked = spec(key="k", code="3.11-old")
        assert await verdicts(store, asked, spec(key="l")) == ["new", "new"]
        assert (await get_job(store, asked.id)).spec.code == "3.11-old"
        answers = await store.insert([spec(key="k", code="3.11-new"), spec(key="l", code="3.11-new")], now=NOON)
        assert [(a.verdict, a.code) for a in answers] == [("duplicate", "3.11-old"), ("duplicate", "")]
        [answer] = await store.insert([spec(key="k", args=OTHER, code="3.11-new")], now=NOON)
        assert (answer.verdict, answer.code) == ("conflict", "3.11-old")

    async def test_a_key_is_kept_while_its_job_is(self, store: Store) -> None:
        await accept(store, key="k")
        await run_one(store)
        assert (await store.purge(Purge(keys_for=MINUTE), now=NOON + DAY)).keys == 0
        assert await verdicts(store, spec(key="k"), now=NOON + DAY) == ["duplicate"]

    async def test_a_key_answered_by_a_unique_holder_stays_answered_by_it(self, store: Store) -> None:
        [holder] = await store.insert([spec(unique="u")], now=NOON)
        asked = spec(unique="u", key="k", digest="d")
        [first] = await store.insert([asked], now=NOON)
        await run_one(store)
        [again] = await store.insert([replace(asked, id="job-another")], now=NOON)
        assert (first.job, first.same) == (holder.job, "unique")
        assert (again.verdict, again.job, again.same) == ("duplicate", holder.job, "key")


class Uniques:
    async def test_unique_returns_the_unfinished_job_that_holds_the_name(self, store: Store) -> None:
        job = await accept(store, unique="u", priority=5)
        [answer] = await store.insert([spec("other", unique="u", priority=0)], now=NOON)
        assert (answer.verdict, answer.job) == (Verdict.DUPLICATE, job)
        assert (await get_job(store, job)).priority == 5

    async def test_unique_refuse_is_a_conflict(self, store: Store) -> None:
        job = await accept(store, unique="u")
        [answer] = await store.insert([spec(unique="u", on_conflict="refuse")], now=NOON)
        assert (answer.verdict, answer.job, answer.state) == (Verdict.CONFLICT, job, State.QUEUED)

    async def test_unique_raise_lifts_the_waiting_job_to_the_higher_urgency(self, store: Store) -> None:
        job = await accept(store, unique="u", priority=7)
        first = await accept(store, priority=5)
        assert await verdicts(store, spec(unique="u", priority=9, on_conflict="raise")) == ["duplicate"]
        assert (await get_job(store, job)).priority == 7
        [answer] = await store.insert([spec(unique="u", priority=2, on_conflict="raise", by="bob")], now=NOON)
        assert (answer.verdict, answer.job) == (Verdict.DUPLICATE, job)
        assert (await get_job(store, job)).priority == 2
        assert [(e.kind, e.by) for e in await store.history(job)][1:] == [("reprioritised", "bob")]
        assert await claim_ids(store, 2) == [job, first]

    async def test_unique_raise_leaves_a_running_job_alone(self, store: Store) -> None:
        job = await accept(store, unique="u", priority=7)
        await claim_one(store)
        assert await verdicts(store, spec(unique="u", priority=0, on_conflict="raise")) == ["duplicate"]
        assert (await get_job(store, job)).priority == 7

    async def test_unique_replace_cancels_the_waiting_job_and_takes_its_name(self, store: Store) -> None:
        queued = await accept(store, unique="u")
        delayed = await accept(store, unique="u", on_conflict="replace", delay=MINUTE, by="bob")
        suspended = await accept(store, unique="u", on_conflict="replace", by="bob")
        await amend(store, "suspend", suspended)
        last = await accept(store, unique="u", on_conflict="replace", by="bob")
        for replaced in (queued, delayed, suspended):
            job = await get_job(store, replaced)
            assert (job.state, job.note, job.finished_at) == (State.CANCELLED, "replaced", NOON)
            assert (await store.history(replaced))[-1].by == "bob"
        assert await claim_ids(store, 9, now=NOON + HOUR) == [last]
        await assert_sound(store)

    async def test_unique_replace_leaves_a_running_job_alone(self, store: Store) -> None:
        job = await accept(store, unique="u")
        await claim_one(store)
        assert await verdicts(store, spec(unique="u", on_conflict="replace")) == ["duplicate"]
        assert await state_of(store, job) is State.RUNNING

    async def test_a_replacement_fits_into_a_full_queue_and_no_other_job_does(self, store: Store) -> None:
        await configure(store, capacity=1)
        old = await accept(store, unique="u")
        new = spec(unique="u", on_conflict="replace")
        assert await verdicts(store, spec(), new, spec()) == ["full", "new", "full"]
        assert await state_of(store, old) is State.CANCELLED

    async def test_a_replacement_that_finds_its_queue_full_replaces_nothing(self, store: Store) -> None:
        await configure(store, "full", capacity=0)
        old = await accept(store, unique="u")
        assert await verdicts(store, spec(unique="u", on_conflict="replace", queue="full")) == ["full"]
        assert await state_of(store, old) is State.QUEUED

    async def test_a_unique_name_is_free_once_its_job_has_ended(self, store: Store) -> None:
        first = await accept(store, unique="u")
        assert await run_one(store) == first
        second = await accept(store, unique="u")
        await amend(store, "cancel", second)
        third = await accept(store, unique="u", expires_in=MINUTE)
        await store.advance(now=NOON + MINUTE)
        assert await state_of(store, third) is State.FAILED
        await accept(store, unique="u")

    async def test_a_job_whose_unique_name_was_taken_cannot_be_retried(self, store: Store) -> None:
        first = await accept(store, unique="u")
        await run_one(store)
        second = await accept(store, unique="u")
        assert await amend(store, "retry", first) == ["refused"]
        await amend(store, "cancel", second)
        assert await amend(store, "retry", first, second) == ["done", "refused"]
        assert await verdicts(store, spec(unique="u")) == ["duplicate"]


class UniquesWhileWaiting:
    """`unique_while="waiting"`: a running job gives its unique name up to the next one."""

    async def test_a_running_job_can_be_submitted_again_under_its_unique_name(self, store: Store) -> None:
        running = await accept(store, **WAITING_ONCE)
        await claim_one(store)
        waiting = await accept(store, **WAITING_ONCE)
        [answer] = await store.insert([spec(**WAITING_ONCE)], now=NOON)
        assert (answer.verdict, answer.job, answer.same) == (Verdict.DUPLICATE, waiting, "unique")
        assert [await state_of(store, job) for job in (running, waiting)] == [State.RUNNING, State.QUEUED]
        await assert_sound(store, [running, waiting])

    async def test_one_waiting_job_stands_in_the_way_of_the_next(self, store: Store) -> None:
        job = await accept(store, **WAITING_ONCE, priority=7)
        options = [("return", "duplicate"), ("raise", "duplicate"), ("refuse", "conflict")]
        for on_conflict, verdict in options:
            asked = spec(**WAITING_ONCE, priority=2, on_conflict=on_conflict)
            assert await verdicts(store, asked) == [verdict]
        assert (await get_job(store, job)).priority == 2
        new = await accept(store, **WAITING_ONCE, on_conflict="replace")
        assert [await state_of(store, job), await state_of(store, new)] == [State.CANCELLED, State.QUEUED]

    async def test_scheduled_and_suspended_jobs_wait_too(self, store: Store) -> None:
        job = await accept(store, **WAITING_ONCE, delay=MINUTE)
        assert await verdicts(store, spec(**WAITING_ONCE)) == ["duplicate"]
        await amend(store, "suspend", job)
        assert await verdicts(store, spec(**WAITING_ONCE)) == ["duplicate"]

    async def test_a_running_job_is_never_replaced_nor_refused_for(self, store: Store) -> None:
        running = await accept(store, **WAITING_ONCE)
        await claim_one(store)
        new = await accept(store, **WAITING_ONCE, on_conflict="replace")
        await claim_one(store)
        last = await accept(store, **WAITING_ONCE, on_conflict="refuse")
        states = [await state_of(store, job) for job in (running, new, last)]
        assert states == [State.RUNNING, State.RUNNING, State.QUEUED]

    async def test_without_it_a_running_job_keeps_its_name(self, store: Store) -> None:
        job = await accept(store, **WAITING_ONCE)
        await claim_one(store)
        [answer] = await store.insert([spec(unique="u")], now=NOON)
        assert (answer.verdict, answer.job) == (Verdict.DUPLICATE, job)

    async def test_the_end_of_a_job_does_not_free_a_name_it_gave_up(self, store: Store) -> None:
        await accept(store, **WAITING_ONCE)
        lease = await claim_one(store)
        waiting = await accept(store, **WAITING_ONCE)
        assert await settle(store, lease)
        [answer] = await store.insert([spec(**WAITING_ONCE)], now=NOON)
        assert (answer.verdict, answer.job) == (Verdict.DUPLICATE, waiting)
        await run_one(store)
        assert await verdicts(store, spec(**WAITING_ONCE)) == ["new"]

    async def test_a_retried_job_waits_beside_the_one_that_has_its_name(self, store: Store) -> None:
        first = await accept(store, **WAITING_ONCE)
        lease = await claim_one(store)
        second = await accept(store, **WAITING_ONCE)
        assert await settle(store, lease, Failed(Failure(message="busy", verdict="transient")))
        [answer] = await store.insert([spec(**WAITING_ONCE)], now=NOON)
        assert (answer.verdict, answer.job) == (Verdict.DUPLICATE, second)
        assert set(await claim_ids(store, 9, now=NOON + HOUR)) == {first, second}
        await assert_sound(store, [first, second])

    async def test_a_retried_job_keeps_a_name_that_nobody_took(self, store: Store) -> None:
        job = await accept(store, **WAITING_ONCE)
        assert await settle(store, await claim_one(store), Failed(Failure(message="busy", verdict="transient")))
        [answer] = await store.insert([spec(**WAITING_ONCE)], now=NOON)
        assert (answer.verdict, answer.job) == (Verdict.DUPLICATE, job)

    async def test_a_person_may_retry_a_job_whose_name_a_running_one_has(self, store: Store) -> None:
        first = await accept(store, **WAITING_ONCE)
        await run_one(store)
        second = await accept(store, **WAITING_ONCE)
        assert await amend(store, "retry", first) == ["refused"]
        await claim_one(store)
        assert await amend(store, "retry", first) == ["done"]
        [answer] = await store.insert([spec(**WAITING_ONCE)], now=NOON)
        assert (answer.verdict, answer.job) == (Verdict.DUPLICATE, first)
        assert await state_of(store, second) is State.RUNNING

    async def test_its_kind_of_uniqueness_is_kept_with_the_job(self, store: Store) -> None:
        job = await accept(store, **WAITING_ONCE)
        assert (await get_job(store, job)).spec.unique_while == "waiting"
        assert (await claim_one(store)).spec.unique_while == "waiting"

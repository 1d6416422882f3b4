"""Promise 7: one idempotency key, one job; and unique names, held by one unfinished job at a time."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from daybreak.model import State
from daybreak.store import Purge, Store, Verdict
from daybreak.testing.contract.builders import (
    DAY,
    HOUR,
    MINUTE,
    NOON,
    accept,
    act,
    assert_sound,
    configure,
    find_all,
    look,
    run_one,
    spec,
    state_of,
    take_ids,
    take_one,
    verdicts,
)

OTHER = b'{"other":1}'


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

    async def test_a_key_outlives_its_removed_job_for_as_long_as_asked(self, store: Store) -> None:
        job = await accept(store, key="k")
        await act(store, "cancel", job)
        await act(store, "remove", job, now=NOON + HOUR)
        [answer] = await store.insert([spec(key="k")], now=NOON + HOUR)
        assert (answer.verdict, answer.job, answer.state) == (Verdict.DUPLICATE, job, None)
        assert await verdicts(store, spec(key="k", args=OTHER), now=NOON + HOUR) == ["conflict"]
        assert (await store.purge(Purge(keys_for=DAY), now=NOON + DAY)).keys == 0
        assert (await store.purge(Purge(keys_for=DAY), now=NOON + DAY + HOUR)).keys == 1
        assert await verdicts(store, spec(key="k", args=OTHER), now=NOON + DAY + HOUR) == ["new"]

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
        await act(store, "remove", holder.job)
        [late] = await store.insert([replace(asked, id="job-late")], now=NOON)
        assert (late.verdict, late.job) == ("duplicate", holder.job)


class Uniques:
    async def test_unique_returns_the_unfinished_job_that_holds_the_name(self, store: Store) -> None:
        job = await accept(store, unique="u", priority=5)
        [answer] = await store.insert([spec("other", unique="u", priority=0)], now=NOON)
        assert (answer.verdict, answer.job) == (Verdict.DUPLICATE, job)
        assert (await look(store, job)).priority == 5

    async def test_unique_refuse_is_a_conflict(self, store: Store) -> None:
        job = await accept(store, unique="u")
        [answer] = await store.insert([spec(unique="u", on_conflict="refuse")], now=NOON)
        assert (answer.verdict, answer.job, answer.state) == (Verdict.CONFLICT, job, State.QUEUED)

    async def test_unique_raise_lifts_the_waiting_job_to_the_higher_urgency(self, store: Store) -> None:
        job = await accept(store, unique="u", priority=7)
        first = await accept(store, priority=5)
        assert await verdicts(store, spec(unique="u", priority=9, on_conflict="raise")) == ["duplicate"]
        assert (await look(store, job)).priority == 7
        [answer] = await store.insert([spec(unique="u", priority=2, on_conflict="raise", by="bob")], now=NOON)
        assert (answer.verdict, answer.job) == (Verdict.DUPLICATE, job)
        assert (await look(store, job)).priority == 2
        assert [(e.kind, e.by) for e in await store.history(job)][1:] == [("reprioritised", "bob")]
        assert await take_ids(store, 2) == [job, first]

    async def test_unique_raise_leaves_a_running_job_alone(self, store: Store) -> None:
        job = await accept(store, unique="u", priority=7)
        await take_one(store)
        assert await verdicts(store, spec(unique="u", priority=0, on_conflict="raise")) == ["duplicate"]
        assert (await look(store, job)).priority == 7

    async def test_unique_replace_cancels_the_waiting_job_and_takes_its_name(self, store: Store) -> None:
        queued = await accept(store, unique="u")
        delayed = await accept(store, unique="u", on_conflict="replace", delay=MINUTE, by="bob")
        suspended = await accept(store, unique="u", on_conflict="replace", by="bob")
        await act(store, "suspend", suspended)
        last = await accept(store, unique="u", on_conflict="replace", by="bob")
        for replaced in (queued, delayed, suspended):
            job = await look(store, replaced)
            assert (job.state, job.note, job.finished_at) == (State.CANCELLED, "replaced", NOON)
            assert (await store.history(replaced))[-1].by == "bob"
        assert await take_ids(store, 9, now=NOON + HOUR) == [last]
        await assert_sound(store)

    async def test_unique_replace_leaves_a_running_job_alone(self, store: Store) -> None:
        job = await accept(store, unique="u")
        await take_one(store)
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
        await act(store, "cancel", second)
        third = await accept(store, unique="u", expires_in=MINUTE)
        await store.advance(now=NOON + MINUTE)
        assert await state_of(store, third) is State.FAILED
        await accept(store, unique="u")

    async def test_a_job_whose_unique_name_was_taken_cannot_be_retried(self, store: Store) -> None:
        first = await accept(store, unique="u")
        await run_one(store)
        second = await accept(store, unique="u")
        assert await act(store, "retry", first) == ["refused"]
        await act(store, "cancel", second)
        assert await act(store, "retry", first, second) == ["done", "refused"]
        assert await verdicts(store, spec(unique="u")) == ["duplicate"]

"""Jobs that come from another store, and jobs that were moved to another store."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from daybreak.core.errors import BadInput
from daybreak.core.model import Done, State
from daybreak.store.protocol import Moved, Purge, Store, Verdict
from daybreak.testing.contract.builders import (
    DAY,
    FATAL,
    HOUR,
    MINUTE,
    NOON,
    OOPS,
    SECOND,
    TWICE,
    accept,
    amend,
    assert_sound,
    beat,
    claim_ids,
    claim_jobs,
    claim_one,
    find_all,
    follow,
    get_job,
    kinds_of,
    run_one,
    settle,
    spec,
    state_of,
    verdicts,
)

LATER = NOON + MINUTE


async def packed(store: Store, job: str) -> Moved:
    [moved] = await store.pack([job])
    assert moved is not None
    return moved


async def uprooted(store: Store, job: str, now: datetime = LATER) -> Moved:
    """A job as it was, gone from here."""
    moved = await packed(store, job)
    assert (await store.purge(Purge(moved=((job, moved.job.revision),)), now=now)).moved == [True]
    assert await store.get([job]) == [None]
    await assert_sound(store)
    return moved


async def adopted(store: Store, moved: Moved, now: datetime = LATER) -> None:
    [answer] = await store.adopt([moved], by="mover", now=now)
    assert (answer.verdict, answer.job, answer.state) == (Verdict.NEW, moved.job.id, moved.job.state)
    await assert_sound(store, [moved.job.id])


def changed(moved: Moved, **said: Any) -> Moved:
    """The same job, with other fields."""
    return replace(moved, job=replace(moved.job, **said))


class Migration:
    async def test_a_job_that_ended_stays_as_it_was(self, store: Store) -> None:
        job = await accept(
            store, tags=("a",), meta={"b": "c"}, trace="00-1-2-01", owner="ann", run="r", keep_completed=2 * DAY
        )
        await run_one(store, Done(b"42"), now=NOON + SECOND)
        moved = await uprooted(store, job)
        await adopted(store, moved)
        found = await get_job(store, job)
        told = (await store.history(job))[-1]
        new = {
            "seq": found.seq, "fence": moved.job.fence + 1, "revision": moved.job.revision + 1, "updated_at": told.at
        }  # fmt: skip
        assert found == replace(moved.job, **new)
        assert (told.kind, told.by, told.state) == ("moved", "mover", State.COMPLETED)
        assert (await store.history(job))[:-1] == moved.history
        assert (await follow(store))[0][-1] == told
        assert (await store.purge(Purge(), now=NOON + DAY)).jobs == 0
        assert (await store.purge(Purge(), now=NOON + SECOND + 2 * DAY)).jobs == 1

    async def test_a_failure_is_kept_and_can_be_retried(self, store: Store) -> None:
        job = await accept(store)
        await run_one(store, FATAL)
        moved = await uprooted(store, job)
        await adopted(store, moved)
        assert (await get_job(store, job)).failure == moved.job.failure is not None
        assert await amend(store, "retry", job, now=LATER) == ["done"]
        assert await claim_ids(store, now=LATER) == [job]

    async def test_a_waiting_job_is_claimed_in_its_place_under_a_higher_fence(self, store: Store) -> None:
        first, second = await accept(store, retry=TWICE), await accept(store, priority=2)
        assert await settle(store, await claim_one(store, queues=("default",)))  # the urgent one
        lease = await claim_one(store)
        assert await settle(store, lease, OOPS)
        await store.advance(now=LATER)
        moved = await uprooted(store, first)
        assert (moved.job.state, moved.job.attempt) == (State.QUEUED, 1)
        await adopted(store, moved)
        again = await claim_one(store, now=LATER)
        assert (again.job, again.attempt, again.spec) == (first, 2, lease.spec)
        assert again.fence > moved.job.fence
        assert not await settle(store, lease, now=LATER)
        assert await settle(store, again, now=LATER)
        assert await state_of(store, second) is State.COMPLETED

    async def test_rank_is_by_priority_also_among_adopted_ones(self, store: Store) -> None:
        low, high = await accept(store, priority=5), await accept(store, priority=8)
        await amend(store, "rerank", high, priority=1)
        parted = [await uprooted(store, low), await uprooted(store, high)]
        here = await accept(store, priority=3, now=LATER)
        for moved in parted:
            await adopted(store, moved)
        assert await claim_ids(store, 3, now=LATER) == [high, here, low]

    async def test_a_scheduled_job_is_due_when_it_was(self, store: Store) -> None:
        job = await accept(store, run_at=NOON + HOUR)
        await adopted(store, await uprooted(store, job))
        assert (await get_job(store, job)).run_at == NOON + HOUR
        told = (await store.history(job))[-1]
        assert (told.kind, told.state, told.run_at) == ("moved", State.SCHEDULED, NOON + HOUR)
        assert (await follow(store))[0][-1] == told
        assert await claim_jobs(store, now=NOON + HOUR - SECOND) == []
        assert await claim_ids(store, now=NOON + HOUR) == [job]

    async def test_what_cannot_be_adopted_is_refused_before_anything_is_written(self, store: Store) -> None:
        good, late = await accept(store), await accept(store, run_at=NOON + HOUR)
        moved, waits = await uprooted(store, good), await uprooted(store, late)
        events, cursor = await follow(store)
        half = replace(moved.job.spec, id="half \udcff a pair")
        for bad in (
            changed(waits, run_at=None), changed(moved, state=State.RUNNING), changed(moved, state=State.COMPLETED),
            changed(moved, priority=11), changed(moved, fence=2**31 - 1), changed(moved, spec=half),
        ):  # fmt: skip
            with pytest.raises(BadInput):
                await store.adopt([moved, bad], by="mover", now=LATER)
            assert await store.get([good, late]) == [None, None]
        assert await follow(store) == (events, cursor)
        assert await store.count() == []
        await adopted(store, moved)
        await adopted(store, waits)

    async def test_text_that_no_encoding_can_carry_is_spelt_out(self, store: Store) -> None:
        moved = await uprooted(store, await accept(store))
        told = [replace(moved.history[0], by="\udcff", note="\udcff", error="\udcff")]
        odd = replace(changed(moved, note="\udcff", message="\udcff", progress=0.5), history=told)
        [answer] = await store.adopt([odd], by="\udcff", now=LATER)
        assert answer.verdict is Verdict.NEW
        found = await get_job(store, moved.job.id)
        assert (found.note, found.message) == ("\\udcff", "\\udcff")
        assert (await store.history(moved.job.id))[-1].by == "\\udcff"

    async def test_a_suspended_job_waits_on_when_it_is_resumed(self, store: Store) -> None:
        job = await accept(store, run_at=NOON + HOUR)
        assert await amend(store, "suspend", job) == ["done"]
        assert (await get_job(store, job)).run_at is None
        moved = await uprooted(store, job)
        assert (moved.job.state, moved.job.run_at) == (State.SUSPENDED, NOON + HOUR)
        await adopted(store, moved)
        assert await amend(store, "resume", job, now=LATER) == ["done"]
        assert await state_of(store, job) is State.SCHEDULED
        assert await claim_ids(store, now=NOON + HOUR) == [job]

    async def test_what_was_held_brings_its_checkpoint(self, store: Store) -> None:
        job = await accept(store)
        lease = await claim_one(store)
        assert (await beat(store, lease, checkpoint=b"half", progress=0.5)).held
        assert await amend(store, "suspend", job) == ["requested"]
        assert await settle(store, lease, OOPS)
        await adopted(store, await uprooted(store, job))
        assert await state_of(store, job) is State.SUSPENDED
        assert await amend(store, "resume", job, now=LATER) == ["done"]
        assert (await claim_one(store, now=LATER + HOUR)).checkpoint == b"half"

    async def test_a_wait_that_has_a_limit_keeps_it(self, store: Store) -> None:
        job = await accept(store, expires_in=HOUR)
        await adopted(store, await uprooted(store, job))
        assert (await store.advance(now=NOON + HOUR - SECOND)).expired == 0
        assert (await store.advance(now=NOON + HOUR + SECOND)).expired == 1
        assert (await kinds_of(store, job))[-1] == "expired"

    async def test_asked_again_nothing_changes(self, store: Store) -> None:
        job = await accept(store)
        moved = await uprooted(store, job)
        await adopted(store, moved)
        before = await packed(store, job)
        [answer] = await store.adopt([moved], by="mover", now=LATER)
        assert (answer.verdict, answer.job, answer.same) == (Verdict.DUPLICATE, job, "id")
        assert await packed(store, job) == before
        assert await find_all(store) == [job]

    async def test_keys_go_along(self, store: Store) -> None:
        asked = spec(key="k")
        assert await verdicts(store, asked) == ["new"]
        moved = await uprooted(store, asked.id)
        await adopted(store, moved)
        again = replace(asked, id="another")
        [answer] = await store.insert([again], now=LATER)
        assert (answer.verdict, answer.job, answer.same) == (Verdict.DUPLICATE, asked.id, "key")
        stranger = Moved(replace(moved.job, spec=replace(asked, id="stranger")), moved.history)
        [answer] = await store.adopt([stranger], by="mover", now=LATER)
        assert (answer.verdict, answer.job, answer.same) == (Verdict.CONFLICT, asked.id, "key")

    async def test_every_key_of_a_job_goes_along(self, store: Store) -> None:
        first, second = spec(key="k1", unique="u"), spec(key="k2", unique="u")
        assert await verdicts(store, first, second) == ["new", "duplicate"]
        moved = await uprooted(store, first.id)
        assert moved.keys == {"k1": first.digest, "k2": second.digest}
        await store.purge(Purge(), now=NOON + 8 * DAY)
        await adopted(store, moved, now=NOON + 8 * DAY)
        assert (await store.pack([first.id]))[0].keys == moved.keys  # type: ignore[union-attr]
        await amend(store, "cancel", first.id, now=NOON + 8 * DAY)
        [answer] = await store.insert([replace(second, id="another")], now=NOON + 8 * DAY)
        assert (answer.verdict, answer.job, answer.same) == (Verdict.DUPLICATE, first.id, "key")

    async def test_any_key_that_stands_for_another_is_in_the_way(self, store: Store) -> None:
        first, second = spec(key="k1", unique="u"), spec(key="k2", unique="u")
        assert await verdicts(store, first, second) == ["new", "duplicate"]
        moved = await uprooted(store, first.id)
        await store.purge(Purge(), now=NOON + 8 * DAY)
        taken = await accept(store, key="k2", now=NOON + 8 * DAY)
        [answer] = await store.adopt([moved], by="mover", now=NOON + 8 * DAY)
        assert (answer.verdict, answer.job, answer.same) == (Verdict.CONFLICT, taken, "key")
        assert await find_all(store) == [taken]

    async def test_a_key_lives_as_long_as_its_job_also_there_and_back(self, store: Store) -> None:
        asked = spec(key="k", run_at=NOON + 30 * DAY)
        assert await verdicts(store, asked) == ["new"]
        await adopted(store, await uprooted(store, asked.id))
        assert (await store.purge(Purge(), now=NOON + 8 * DAY)).keys == 0
        again = replace(asked, id="another")
        [answer] = await store.insert([again], now=NOON + 8 * DAY)
        assert (answer.verdict, answer.job, answer.same) == (Verdict.DUPLICATE, asked.id, "key")
        await uprooted(store, asked.id, now=NOON + 9 * DAY)
        assert (await store.purge(Purge(), now=NOON + 10 * DAY - SECOND)).keys == 0
        assert (await store.purge(Purge(), now=NOON + 10 * DAY)).keys == 1
        assert await verdicts(store, again, now=NOON + 10 * DAY) == ["new"]

    async def test_a_job_that_moved_leaves_its_key_spent_for_a_day(self, store: Store) -> None:
        asked = spec(key="k", run_at=NOON + 30 * DAY)
        assert await verdicts(store, asked) == ["new"]
        await uprooted(store, asked.id, now=NOON + 8 * DAY)
        again = replace(asked, id="another")
        [answer] = await store.insert([again], now=NOON + 9 * DAY - SECOND)
        assert (answer.verdict, answer.job, answer.state) == (Verdict.SPENT, asked.id, None)
        assert await verdicts(store, again, now=NOON + 9 * DAY) == ["new"]

    async def test_a_spent_key_is_in_the_way_of_another_job_until_its_time_is_over(self, store: Store) -> None:
        moved = await uprooted(store, await accept(store, key="k", run_at=NOON + 30 * DAY), now=NOON)
        await accept(store, key="k", keep_completed=MINUTE, now=NOON + DAY)
        gone = await run_one(store, now=NOON + DAY)
        await store.purge(Purge(), now=NOON + DAY + HOUR)
        [answer] = await store.adopt([moved], by="mover", now=NOON + DAY + HOUR)
        assert (answer.verdict, answer.job, answer.state, answer.same) == (Verdict.CONFLICT, gone, None, "key")
        await adopted(store, moved, now=NOON + 2 * DAY)
        [answer] = await store.insert([replace(moved.job.spec, id="another")], now=NOON + 2 * DAY)
        assert (answer.verdict, answer.job, answer.same) == (Verdict.DUPLICATE, moved.job.id, "key")

    async def test_a_job_that_gave_up_its_unique_name_moves_without_it(self, store: Store) -> None:
        first, second = (spec(unique="u", unique_while="waiting") for _ in range(2))
        assert await verdicts(store, first) == ["new"]
        lease = await claim_one(store)
        assert await verdicts(store, second) == ["new"]
        assert await settle(store, lease, OOPS)
        assert [(await packed(store, job)).holds_name for job in (first.id, second.id)] == [False, True]
        moved = [await uprooted(store, job) for job in (first.id, second.id)]
        assert moved[0].job.spec.unique_while == "waiting"
        for one in moved:
            await adopted(store, one)
        [answer] = await store.insert([spec(unique="u", unique_while="waiting")], now=LATER)
        assert (answer.verdict, answer.job) == (Verdict.DUPLICATE, second.id)

    async def test_unique_names_go_along(self, store: Store) -> None:
        job = await accept(store, unique="u", on_conflict="refuse")
        moved = await uprooted(store, job)
        taken = await accept(store, unique="u", on_conflict="refuse")
        [answer] = await store.adopt([moved], by="mover", now=LATER)
        assert (answer.verdict, answer.job, answer.same) == (Verdict.CONFLICT, taken, "unique")
        assert await store.get([job]) == [None]
        await amend(store, "cancel", taken)
        await adopted(store, moved)
        assert await verdicts(store, spec(unique="u", on_conflict="refuse")) == ["conflict"]

    async def test_jobs_are_packed_as_they_are(self, store: Store) -> None:
        job, ended = await accept(store), await accept(store, key="k", priority=1)
        await run_one(store)
        packed = await store.pack([ended, "nobody", job])
        assert [None if one is None else one.job for one in packed] == [*await store.get([ended, "nobody", job])]
        assert [None if one is None else one.history for one in packed] == [
            await store.history(ended), None, await store.history(job),
        ]  # fmt: skip
        assert [one and set(one.keys) for one in packed] == [{"k"}, None, set()]

    async def test_each_answers_for_itself(self, store: Store) -> None:
        jobs = [await accept(store) for _ in range(3)]
        moved = [await packed(store, jobs[0]), *[await uprooted(store, job) for job in jobs[1:]]]
        answers = await store.adopt(moved, by="mover", now=LATER)
        assert [answer.verdict for answer in answers] == [Verdict.DUPLICATE, Verdict.NEW, Verdict.NEW]
        await assert_sound(store, jobs)

    async def test_only_what_has_not_changed_since_is_dropped(self, store: Store) -> None:
        running, changed = await accept(store, priority=0), await accept(store)
        before = await get_job(store, changed)
        await claim_one(store)
        await amend(store, "rerank", changed, priority=1)
        asked = ((running, (await get_job(store, running)).revision), (changed, before.revision), ("nobody", 1))
        assert (await store.purge(Purge(moved=asked), now=LATER)).moved == [False, False, False]
        assert set(await find_all(store)) == {running, changed}
        await assert_sound(store, [running, changed])

    async def test_a_job_that_is_named_twice_is_dropped_once(self, store: Store) -> None:
        moved, left = await accept(store), await accept(store)
        named = (moved, (await get_job(store, moved)).revision)
        assert (await store.purge(Purge(moved=(named, named)), now=LATER)).moved == [True, False]
        assert set(await find_all(store)) == {left}
        await assert_sound(store, [left])

    async def test_a_long_history_stays_whole(self, store: Store) -> None:
        job = await accept(store)
        for n in range(450):
            await amend(store, "rerank", job, priority=n % 9)
        moved = await uprooted(store, job)
        await adopted(store, moved)
        for n in range(250):
            await amend(store, "rerank", job, priority=n % 9 + 1, now=LATER)
        await assert_sound(store, [job])
        assert (await store.history(job))[0] == moved.history[0]

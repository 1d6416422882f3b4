"""Jobs that come from another store, and jobs that have gone to one."""

from __future__ import annotations

from datetime import datetime

import msgspec

from daybreak.model import Done, State
from daybreak.store import Moved, Purge, Store, Verdict
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
    act,
    assert_sound,
    beat,
    end,
    find_all,
    follow,
    kinds_of,
    look,
    run_one,
    spec,
    state_of,
    take,
    take_ids,
    take_one,
    verdicts,
)

LATER = NOON + MINUTE


async def packed(store: Store, job: str) -> Moved:
    return Moved(await look(store, job), await store.history(job))


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


class Moving:
    async def test_a_job_that_ended_stays_as_it_was(self, store: Store) -> None:
        job = await accept(store, tags=("a",), meta={"b": "c"}, owner="ann", run="r", keep_completed=2 * DAY)
        await run_one(store, Done(b"42"), now=NOON + SECOND)
        moved = await uprooted(store, job)
        await adopted(store, moved)
        found = await look(store, job)
        new = {"seq": found.seq, "fence": moved.job.fence + 1, "revision": moved.job.revision + 1}
        assert found == msgspec.structs.replace(moved.job, **new)
        told = (await store.history(job))[-1]
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
        assert (await look(store, job)).failure == moved.job.failure is not None
        assert await act(store, "retry", job, now=LATER) == ["done"]
        assert await take_ids(store, now=LATER) == [job]

    async def test_a_waiting_job_is_claimed_in_its_place_under_a_higher_fence(self, store: Store) -> None:
        first, second = await accept(store, retry=TWICE), await accept(store, priority=2)
        assert await end(store, await take_one(store, queues=("default",)))  # the urgent one
        lease = await take_one(store)
        assert await end(store, lease, OOPS)
        await store.advance(now=LATER)
        moved = await uprooted(store, first)
        assert (moved.job.state, moved.job.attempt) == (State.QUEUED, 1)
        await adopted(store, moved)
        again = await take_one(store, now=LATER)
        assert (again.job, again.attempt, again.spec) == (first, 2, lease.spec)
        assert again.fence > moved.job.fence
        assert not await end(store, lease, now=LATER)
        assert await end(store, again, now=LATER)
        assert await state_of(store, second) is State.COMPLETED

    async def test_rank_is_by_priority_also_among_adopted_ones(self, store: Store) -> None:
        low, high = await accept(store, priority=5), await accept(store, priority=8)
        await act(store, "rerank", high, priority=1)
        parted = [await uprooted(store, low), await uprooted(store, high)]
        here = await accept(store, priority=3, now=LATER)
        for moved in parted:
            await adopted(store, moved)
        assert await take_ids(store, 3, now=LATER) == [high, here, low]

    async def test_a_scheduled_job_is_due_when_it_was(self, store: Store) -> None:
        job = await accept(store, run_at=NOON + HOUR)
        await adopted(store, await uprooted(store, job))
        assert (await look(store, job)).run_at == NOON + HOUR
        assert await take(store, now=NOON + HOUR - SECOND) == []
        assert await take_ids(store, now=NOON + HOUR) == [job]

    async def test_a_suspended_job_waits_on_when_it_is_resumed(self, store: Store) -> None:
        job = await accept(store, run_at=NOON + HOUR)
        assert await act(store, "suspend", job) == ["done"]
        moved = await uprooted(store, job)
        await adopted(store, Moved(msgspec.structs.replace(moved.job, run_at=NOON + HOUR), moved.history))
        assert await act(store, "resume", job, now=LATER) == ["done"]
        assert await state_of(store, job) is State.SCHEDULED
        assert await take_ids(store, now=NOON + HOUR) == [job]

    async def test_what_was_held_brings_its_checkpoint(self, store: Store) -> None:
        job = await accept(store)
        lease = await take_one(store)
        assert (await beat(store, lease, checkpoint=b"half", progress=0.5)).held
        assert await act(store, "suspend", job) == ["requested"]
        assert await end(store, lease, OOPS)
        await adopted(store, await uprooted(store, job))
        assert await state_of(store, job) is State.SUSPENDED
        assert await act(store, "resume", job, now=LATER) == ["done"]
        assert (await take_one(store, now=LATER + HOUR)).checkpoint == b"half"

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
        again = msgspec.structs.replace(asked, id="another")
        [answer] = await store.insert([again], now=LATER)
        assert (answer.verdict, answer.job, answer.same) == (Verdict.DUPLICATE, asked.id, "key")
        stranger = Moved(
            msgspec.structs.replace(moved.job, spec=msgspec.structs.replace(asked, id="stranger")), moved.history
        )
        [answer] = await store.adopt([stranger], by="mover", now=LATER)
        assert (answer.verdict, answer.job, answer.same) == (Verdict.CONFLICT, asked.id, "key")

    async def test_unique_names_go_along(self, store: Store) -> None:
        job = await accept(store, unique="u", on_conflict="refuse")
        moved = await uprooted(store, job)
        taken = await accept(store, unique="u", on_conflict="refuse")
        [answer] = await store.adopt([moved], by="mover", now=LATER)
        assert (answer.verdict, answer.job, answer.same) == (Verdict.CONFLICT, taken, "unique")
        assert await store.get([job]) == [None]
        await act(store, "cancel", taken)
        await adopted(store, moved)
        assert await verdicts(store, spec(unique="u", on_conflict="refuse")) == ["conflict"]

    async def test_each_answers_for_itself(self, store: Store) -> None:
        jobs = [await accept(store) for _ in range(3)]
        moved = [await packed(store, jobs[0]), *[await uprooted(store, job) for job in jobs[1:]]]
        answers = await store.adopt(moved, by="mover", now=LATER)
        assert [answer.verdict for answer in answers] == [Verdict.DUPLICATE, Verdict.NEW, Verdict.NEW]
        await assert_sound(store, jobs)

    async def test_only_what_has_not_changed_since_is_dropped(self, store: Store) -> None:
        running, changed = await accept(store, priority=0), await accept(store)
        before = await look(store, changed)
        await take_one(store)
        await act(store, "rerank", changed, priority=1)
        asked = ((running, (await look(store, running)).revision), (changed, before.revision), ("nobody", 1))
        assert (await store.purge(Purge(moved=asked), now=LATER)).moved == [False, False, False]
        assert set(await find_all(store)) == {running, changed}
        await assert_sound(store, [running, changed])

    async def test_a_long_history_stays_whole(self, store: Store) -> None:
        job = await accept(store)
        for n in range(450):
            await act(store, "rerank", job, priority=n % 9)
        moved = await uprooted(store, job)
        await adopted(store, moved)
        for n in range(250):
            await act(store, "rerank", job, priority=n % 9 + 1, now=LATER)
        await assert_sound(store, [job])
        assert (await store.history(job))[0] == moved.history[0]

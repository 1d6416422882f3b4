"""Promise 9: events fold to the stored state, tallies equal a recount, and every change names who made it."""

from __future__ import annotations

import pytest

from daybreak.core.errors import CursorExpired
from daybreak.core.events import KINDS, fold
from daybreak.core.model import Failed, Failure, HandedBack, Lost, Put, State, Suspended
from daybreak.store.protocol import LATEST, Beat, Filter, Purge, Store, Tally
from daybreak.testing.contract.builders import (
    DAY,
    FATAL,
    HOUR,
    LEASE,
    MINUTE,
    NOON,
    OOPS,
    SECOND,
    TWICE,
    accept,
    accept_all,
    amend,
    assert_sound,
    beat,
    claim_jobs,
    claim_one,
    configure,
    folded,
    follow,
    get_job,
    jobs_of,
    kinds_of,
    reap,
    run_one,
    settle,
    spec,
)


class Events:
    async def test_events_fold_to_the_stored_state(self, store: Store) -> None:
        await live(store)
        for job in [job.id for job in await jobs_of(store)]:
            assert fold(await store.history(job)) == folded(await get_job(store, job)), await kinds_of(store, job)

    async def test_events_are_numbered_without_gaps(self, store: Store) -> None:
        await live(store)
        for job in await jobs_of(store):
            numbers = [event.n for event in await store.history(job.id)]
            assert numbers == list(range(1, job.revision + 1))

    async def test_a_job_was_updated_when_its_latest_event_happened(self, store: Store) -> None:
        await live(store)
        jobs = await jobs_of(store)
        assert len({job.updated_at for job in jobs}) > 1
        for job in jobs:
            assert job.updated_at == (await store.history(job.id))[-1].at, job.id
            assert job == await get_job(store, job.id)

    async def test_progress_is_no_update(self, store: Store) -> None:
        job = await accept(store)
        lease = await claim_one(store, now=NOON + SECOND)
        await beat(store, lease, progress=0.5, now=NOON + 2 * SECOND)
        assert (await get_job(store, job)).updated_at == NOON + SECOND
        await settle(store, lease, now=NOON + 3 * SECOND)
        assert (await get_job(store, job)).updated_at == NOON + 3 * SECOND

    async def test_every_kind_of_event_is_a_known_one(self, store: Store) -> None:
        await live(store)
        kinds = {event.kind for event in (await follow(store))[0]}
        assert kinds <= set(KINDS)
        assert len(kinds) >= 15

    async def test_every_change_says_who_made_it(self, store: Store) -> None:
        job = await accept(store, by="ann")
        await amend(store, "suspend", job, by="bob", note="why")
        await amend(store, "resume", job, by="cid")
        await amend(store, "rerank", job, by="dan", priority=2)
        lease = await claim_one(store, worker="w1")
        await amend(store, "cancel", job, by="eve")
        await settle(store, lease)
        await amend(store, "retry", job, by="fay")
        told = [(event.kind, event.by) for event in await store.history(job)]
        assert told == [
            ("submitted", "ann"), ("suspended", "bob"), ("resumed", "cid"), ("reprioritised", "dan"), ("started", "w1"),
            ("cancel_requested", "eve"), ("cancelled", "eve"), ("retried", "fay"),
        ]  # fmt: skip
        assert (await store.history(job))[1].note == "why"

    async def test_a_finished_job_names_the_worker_that_held_it_last(self, store: Store) -> None:
        never, done, lost, odd = await accept_all(store, 4, retry=TWICE, deaths=1)
        await amend(store, "cancel", never)
        first, *_ = await claim_jobs(store, 3, worker="w1")
        await settle(store, first, OOPS)
        assert (await get_job(store, done)).worker is None  # it waits for its second attempt
        [taken, other] = await reap(store, worker="r1", now=NOON + HOUR)
        await settle(store, taken, Lost(alone=True), now=NOON + HOUR)
        await settle(store, other, Suspended('","kind":"started","by":"nobody"'), now=NOON + HOUR)
        assert (await get_job(store, odd)).worker is None  # held by nobody
        await amend(store, "cancel", odd)
        await run_one(store, worker="w2", now=NOON + HOUR)
        found = [(job.state, job.worker) for job in await jobs_of(store)]
        assert found == [  # newest first
            (State.CANCELLED, "w1"), (State.FAILED, "w1"), (State.COMPLETED, "w2"), (State.CANCELLED, None),
        ]  # fmt: skip
        assert [(await get_job(store, job)).worker for job in (never, done, lost, odd)] == [None, "w2", "w1", "w1"]
        await amend(store, "retry", done)
        assert (await get_job(store, done)).worker is None
        assert (await claim_one(store, worker="w3", now=NOON + HOUR)).job == done
        assert (await get_job(store, done)).worker == "w3"

    async def test_events_tell_when_and_what(self, store: Store) -> None:
        job = await accept(store, "report", queue="mail", priority=2, delay=MINUTE, by="ann")
        lease = await claim_one(store, queues=("mail",), now=NOON + HOUR)
        await settle(store, lease, OOPS, now=NOON + HOUR + SECOND)
        submitted, due, started, retrying = await store.history(job)
        assert (submitted.at, submitted.task, submitted.queue, submitted.priority) == (NOON, "report", "mail", 2)
        assert (submitted.state, submitted.run_at) == (State.SCHEDULED, NOON + MINUTE)
        assert (due.at, due.state) == (NOON + HOUR, State.QUEUED)
        assert (started.attempt, started.fence, started.state) == (1, 1, State.RUNNING)
        assert (retrying.kind, retrying.error, retrying.attempt) == ("retrying", "OSError: oops", 1)
        assert retrying.run_at == (await get_job(store, job)).run_at

    async def test_the_first_event_names_run_and_owner(self, store: Store) -> None:
        """Also where jobs of several runs and owners are inserted in one batch, and their events share a row."""
        named = [(None, None), ("night", None), (None, "ann"), ("night", "ann"), ("night", "bob"), ("day", "bob")]
        specs = [spec(run=run, owner=owner) for run, owner in named]
        await store.insert(specs, now=NOON)
        [keyed] = await store.insert([spec(run="night", owner="ann", key="k", delay=MINUTE)], now=NOON)
        expected = {job.id: names for job, names in zip(specs, named, strict=True)} | {keyed.job: ("night", "ann")}
        events, _ = await follow(store)
        assert {event.job: (event.run, event.owner) for event in events} == expected
        for job, names in expected.items():
            [first] = await store.history(job)
            assert (first.run, first.owner) == names

    async def test_a_reader_who_stops_behind_any_event_goes_on_with_the_next(self, store: Store) -> None:
        """Also when it stopped inside a page, and more was committed before it goes on."""
        await accept_all(store, 5)
        for lease in await claim_jobs(store, 3):
            await settle(store, lease)
        whole = await store.events(None, 100)
        assert len(whole.cursors) == len(whole.events) == 11
        await accept_all(store, 2)
        events, _ = await follow(store)
        assert events[:11] == whole.events
        for seen, cursor in enumerate(whole.cursors, 1):
            for limit in (1, 3, 100):
                rest, _ = await follow(store, cursor, limit)
                assert rest == events[seen:], f"after {seen} events, in pages of {limit}"

    async def test_following_the_cursor_shows_every_event_once(self, store: Store) -> None:
        seen, cursor = await follow(store)
        assert seen == []
        for round_ in range(4):
            await accept_all(store, 3)
            for lease in await claim_jobs(store, 2):
                await settle(store, lease, HandedBack() if round_ % 2 else None)
            page = await store.events(cursor, 2)  # a little, and go on with more written meanwhile
            seen += page.events
            cursor = page.cursor
        rest, cursor = await follow(store, cursor, limit=3)
        seen += rest
        everything, _ = await follow(store)
        assert seen == everything
        for job in await jobs_of(store):
            assert [event for event in seen if event.job == job.id] == await store.history(job.id)
        assert await follow(store, cursor) == ([], cursor)

    async def test_the_latest_cursor_shows_only_what_comes_later(self, store: Store) -> None:
        await accept(store)
        feed = await store.events(LATEST)
        assert feed.events == []
        job = await accept(store)
        assert [event.job for event in (await follow(store, feed.cursor))[0]] == [job]

    async def test_a_cursor_older_than_what_was_purged_is_an_error_and_not_a_gap(self, store: Store) -> None:
        _, start = await follow(store)
        await accept(store, now=NOON)
        _, between = await follow(store)
        await accept(store, now=NOON + DAY)
        await store.purge(Purge(events_for=HOUR), now=NOON + DAY)
        with pytest.raises(CursorExpired):
            await store.events(start)
        assert len((await follow(store, between))[0]) == 1
        assert len((await follow(store))[0]) == 1

    async def test_cursors_stay_good_when_all_events_were_purged(self, store: Store) -> None:
        await accept(store)
        _, cursor = await follow(store)
        await store.purge(Purge(events_for=HOUR), now=NOON + DAY)
        assert (await follow(store, cursor))[0] == []
        job = await accept(store, now=NOON + DAY)
        assert [event.job for event in (await follow(store, cursor))[0]] == [job]

    async def test_history_outlives_the_feed_and_is_kept_as_long_as_the_job(self, store: Store) -> None:
        job = await accept(store)
        await run_one(store)
        await store.purge(Purge(events_for=HOUR), now=NOON + DAY)
        assert await kinds_of(store, job) == ["submitted", "started", "completed"]
        await amend(store, "remove", job, now=NOON + DAY)
        assert await store.history(job) == []
        assert (await follow(store))[0][-1].kind == "removed"

    async def test_progress_is_told_in_the_feed_and_takes_no_number(self, store: Store) -> None:
        job = await accept(store)
        lease = await claim_one(store)
        cursor = (await store.events(LATEST)).cursor
        await beat(store, lease, progress=0.5, message="half")
        [event] = (await follow(store, cursor))[0]
        assert (event.kind, event.job, event.progress, event.note, event.by) == ("progress", job, 0.5, "half", "w1")
        assert await kinds_of(store, job) == ["submitted", "started"]
        await settle(store, lease)
        await assert_sound(store)

    async def test_a_refused_change_tells_nothing(self, store: Store) -> None:
        job = await accept(store)
        lease = await claim_one(store)
        await reap(store, now=NOON + LEASE)
        cursor = (await store.events(LATEST)).cursor
        await settle(store, lease, now=NOON + LEASE)
        await beat(store, lease, progress=0.5, now=NOON + LEASE)
        await amend(store, "remove", job)
        await amend(store, "retry", job)
        await store.insert([spec(id=job)], now=NOON)
        assert (await follow(store, cursor))[0] == []

    async def test_an_unknown_job_has_no_history(self, store: Store) -> None:
        assert await store.history("nobody") == []

    async def test_a_long_history_stays_bounded_and_still_folds(self, store: Store) -> None:
        job = await accept(store)
        for _ in range(450):
            await settle(store, await claim_one(store), HandedBack())
        history = await store.history(job)
        assert len(history) < 450
        assert [event.kind for event in history[:2]] == ["submitted", "folded"]
        assert history[-1].n == 901
        assert fold(history) == folded(await get_job(store, job))

    async def test_text_that_no_encoding_can_carry_harms_nobody(self, store: Store) -> None:
        odd, plain = await accept_all(store, 2)
        leases = await claim_jobs(store, 2)
        answers = await store.extend(
            [Beat(seq=leases[0].seq, fence=1, progress=0.5, message="caf\udce9.wav"), Beat(seq=leases[1].seq, fence=1)],
            now=NOON,
        )
        assert [answer.held for answer in answers] == [True, True]
        assert "caf" in (await get_job(store, odd)).message
        failure = Failure(message="no such file: caf\udce9.wav", kinds=("FileNotFoundError",), traceback="\udcff")
        assert await settle(store, leases[0], Failed(failure))
        assert await settle(store, leases[1])
        assert [(await get_job(store, job)).state for job in (odd, plain)] == [State.FAILED, State.COMPLETED]
        await assert_sound(store)


class Tallies:
    async def test_tallies_equal_a_recount(self, store: Store) -> None:
        await live(store)
        await assert_sound(store)

    async def test_tallies_count_by_queue_task_version_priority_and_state(self, store: Store) -> None:
        await accept_all(store, 2, task="a", queue="q", priority=2)
        await accept(store, "a", queue="q", version=2)
        await claim_jobs(store, queues=("q",))
        assert await store.count() == [
            Tally("q", "a", 1, 2, State.QUEUED, 1),
            Tally("q", "a", 1, 2, State.RUNNING, 1),
            Tally("q", "a", 2, 5, State.QUEUED, 1),
        ]

    async def test_tallies_can_be_asked_for_any_filter(self, store: Store) -> None:
        await accept_all(store, 3, queue="a", owner="ann", tags=("x",))
        await accept_all(store, 2, queue="b", owner="bob", run="r")
        await run_one(store, FATAL, queues=("a",))
        for where, n in (
            (Filter(), 5), (Filter(queue="a"), 3), (Filter(owner="bob"), 2), (Filter(run="r"), 2), (Filter(tag="x"), 3),
            (Filter(states=frozenset({State.FAILED})), 1), (Filter(reason="error"), 1), (Filter(task="none"), 0),
            (Filter(states=frozenset({State.QUEUED}), queue="a"), 2), (Filter(priority=5), 5),
        ):  # fmt: skip
            assert sum(tally.n for tally in await store.count(where)) == n, where

    async def test_tallies_follow_removal_and_purge(self, store: Store) -> None:
        removed, purged = await accept_all(store, 2)
        await run_one(store)
        await run_one(store)
        await amend(store, "remove", removed)
        assert [tally.n for tally in await store.count()] == [1]
        await store.purge(Purge(), now=NOON + 100 * DAY)
        assert await store.get([purged]) == [None]
        assert await store.count() == []


async def live(store: Store) -> None:
    """A little of everything that can happen to a job."""
    await configure(store, "limited", max_running=1, capacity=3)
    await accept_all(store, 3, queue="limited", owner="ann")
    await accept(store, unique="u", priority=7)
    await accept(store, unique="u", on_conflict="replace", priority=8)
    await store.insert([spec(unique="u", on_conflict="raise", priority=1, by="ann")], now=NOON)
    await accept(store, expires_in=MINUTE, queue="nobody")
    held, delayed, *plain = await accept_all(store, 8)
    await amend(store, "suspend", held, delayed)
    await amend(store, "resume", delayed)
    await accept(store, delay=MINUTE)
    await amend(store, "rerank", plain[0], priority=9)
    now = NOON + HOUR
    leases = await claim_jobs(store, 9, queues=("default", "limited"), now=now)
    await beat(store, leases[0], progress=0.5, now=now)
    await amend(store, "cancel", leases[1].job, now=now)
    await amend(store, "suspend", leases[2].job, leases[3].job, now=now)
    await amend(store, "resume", leases[3].job, now=now)
    for lease, outcome in zip(leases, (None, HandedBack(), HandedBack(), OOPS, FATAL, Lost()), strict=False):
        assert await settle(store, lease, outcome, now=now, puts=(Put(kind="note", name="n", value=b"1"),))
    now += HOUR
    await store.advance(now=now)
    for lease in await reap(store, now=now):
        await settle(store, lease, Lost(), now=now)
    await amend(store, "cancel", plain[0], now=now)
    await amend(store, "retry", plain[0], leases[4].job, now=now)
    await claim_jobs(store, 3, queues=("default", "limited"), now=now)

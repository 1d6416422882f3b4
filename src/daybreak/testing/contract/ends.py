"""Eight ways to end, each with an event that a follower of the feed can act on: the job is final, how, and why.

A job that ends without a settlement tells no worker of it. So a follow-up that must happen at every end is made by
whoever follows the feed, and every end must be there, once."""

from __future__ import annotations

from daybreak.core.events import Event, ends_job
from daybreak.core.model import Done, Put, Reason, State
from daybreak.store.protocol import LATEST, Store
from daybreak.testing.contract.builders import (
    FATAL,
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    accept,
    amend,
    assert_sound,
    claim_jobs,
    claim_one,
    configure,
    follow,
    get_job,
    needs,
    provide,
    set_gate,
    settle,
    spec,
)


async def latest(store: Store) -> str:
    return (await store.events(LATEST)).cursor


async def end_of(store: Store, job: str, before: str) -> Event:
    """The event that ended this job. It must be in the feed after `before`, once, and be the last of the history."""
    found, _ = await follow(store, before)
    [event] = [event for event in found if ends_job(event)]
    assert event.job == job
    assert (await store.history(job))[-1] == event
    ended = await get_job(store, job)
    assert ended.is_final
    assert (event.state, event.reason, event.n, event.at) == (
        ended.state, ended.reason, ended.revision, ended.finished_at,
    )  # fmt: skip
    assert event.attempt == ended.attempt
    await assert_sound(store)
    return event


class Ends:
    async def test_a_job_that_completed_tells_its_end(self, store: Store) -> None:
        job = await accept(store)
        lease, before = await claim_one(store, worker="w1"), await latest(store)
        await settle(store, lease, Done(b"1"))
        event = await end_of(store, job, before)
        assert (event.kind, event.state, event.by) == ("completed", State.COMPLETED, "w1")
        assert (event.reason, event.replaced_by, event.attempt) == (None, None, 1)

    async def test_a_job_that_failed_tells_its_end(self, store: Store) -> None:
        job = await accept(store)
        lease, before = await claim_one(store, worker="w1"), await latest(store)
        await settle(store, lease, FATAL)
        event = await end_of(store, job, before)
        assert (event.kind, event.state, event.reason) == ("failed", State.FAILED, Reason.ERROR)
        assert (event.by, event.error, event.attempt) == ("w1", "ValueError: no", 1)

    async def test_a_job_cancelled_while_it_waits_tells_its_end(self, store: Store) -> None:
        for delay in (None, MINUTE):
            job = await accept(store, delay=delay)
            before = await latest(store)
            await amend(store, "cancel", job, by="ann", note="not needed")
            event = await end_of(store, job, before)
            assert (event.kind, event.state, event.reason) == ("cancelled", State.CANCELLED, None)
            assert (event.by, event.note, event.attempt, event.replaced_by) == ("ann", "not needed", 0, None)

    async def test_a_job_cancelled_while_it_runs_tells_its_end_when_it_is_settled(self, store: Store) -> None:
        job = await accept(store)
        lease, before = await claim_one(store, worker="w1"), await latest(store)
        await amend(store, "cancel", job, by="ann")
        assert [event.kind for event in (await follow(store, before))[0]] == ["cancel_requested"]
        await settle(store, lease, Done(b"1"))
        event = await end_of(store, job, before)
        assert (event.kind, event.state, event.reason) == ("cancelled", State.CANCELLED, None)
        assert (event.by, event.attempt, event.replaced_by) == ("ann", 1, None)

    async def test_a_job_that_was_replaced_tells_its_end_and_by_what(self, store: Store) -> None:
        job = await accept(store, unique="u")
        before = await latest(store)
        other = await accept(store, unique="u", on_conflict="replace", by="bob")
        event = await end_of(store, job, before)
        assert (event.kind, event.state, event.reason) == ("cancelled", State.CANCELLED, None)
        assert (event.by, event.note, event.replaced_by) == ("bob", "replaced", other)

    async def test_a_job_that_expired_tells_its_end(self, store: Store) -> None:
        """Also one that a claim finds overdue, and one that waits for a resource."""
        for way in ("advance", "claim", "resource"):
            job = await accept(store, expires_in=SECOND, resources=needs("door") if way == "resource" else ())
            before, now = await latest(store), NOON + MINUTE
            if way == "claim":
                assert await claim_jobs(store, now=now) == []
            else:
                if way == "resource":
                    await set_gate(store, "door", shut_for=HOUR)
                    await claim_jobs(store)
                await store.advance(now=now)
            event = await end_of(store, job, before)
            assert (event.kind, event.state, event.reason) == ("expired", State.FAILED, Reason.EXPIRED)
            assert (event.by, event.attempt, event.replaced_by) == ("", 0, None)

    async def test_a_job_that_was_shed_tells_its_end_and_for_what(self, store: Store) -> None:
        await configure(store, capacity=1, when_full="shed")
        job = await accept(store, priority=9)
        before = await latest(store)
        other = await accept(store, priority=1, by="bob")
        event = await end_of(store, job, before)
        assert (event.kind, event.state, event.reason) == ("shed", State.FAILED, Reason.SHED)
        assert (event.by, event.replaced_by) == ("bob", other)

    async def test_a_job_that_fails_fast_at_a_breaker_tells_its_end(self, store: Store) -> None:
        """Whether a claim finds the breaker open, or it opens while the job waits for a slot."""
        for opens_later in (False, True):
            await provide(store, "door", slots=0)
            if not opens_later:
                await set_gate(store, "door", shut_for=HOUR)
            job = await accept(store, resources=needs("door"), fail_fast=True)
            before = await latest(store)
            assert await claim_jobs(store) == []
            if opens_later:
                assert not [event for event in (await follow(store, before))[0] if ends_job(event)]
                await set_gate(store, "door", shut_for=HOUR)
            event = await end_of(store, job, before)
            assert (event.kind, event.state, event.reason) == ("failed", State.FAILED, Reason.ERROR)
            assert (event.by, event.note, event.attempt) == ("", "the breaker of resource door is open", 0)
            await set_gate(store, "door")

    async def test_what_is_no_end_is_not_taken_for_one(self, store: Store) -> None:
        job = await accept(store)
        await amend(store, "cancel", job)
        before = await latest(store)
        await amend(store, "retry", job)
        lease = await claim_one(store)
        await amend(store, "suspend", job)
        await settle(store, lease, FATAL)
        other = await accept(store)
        await amend(store, "suspend", other)
        await amend(store, "resume", other)
        found, _ = await follow(store, before)
        assert [event.job for event in found if ends_job(event)] == [job]
        await amend(store, "remove", job)
        assert [ends_job(event) for event in (await follow(store, before))[0]].count(True) == 1

    async def test_what_a_settlement_brings_does_not_happen_if_its_job_is_being_cancelled(self, store: Store) -> None:
        """The job ends in another way than the settlement says, so nothing that belongs to the settlement happens."""
        child, other = spec(), spec()
        job = await accept(store)
        lease = await claim_one(store)
        await amend(store, "cancel", job)
        put = Put(kind="note", name="n", value=b"1", inserts=(other,))
        assert await settle(store, lease, inserts=(child,), puts=(put,))
        assert (await get_job(store, job)).state is State.CANCELLED
        assert await store.get([child.id, other.id]) == [None, None]
        assert await store.records("note") == []

"""What a client says and checks itself; what stores do is for the contract suite."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from daybreak.client.client import Client, filter_of
from daybreak.core.errors import (
    BadInput,
    JobNotFound,
    KeyConflict,
    NotEncodable,
    OutcomeUnknown,
    QueueFull,
    RecordChanged,
    StoreFull,
    StoreUnavailable,
    TooLarge,
    UniqueConflict,
    Unsupported,
)
from daybreak.core.events import fold
from daybreak.core.model import DEFAULT_OPTIONS, Done, HandedBack, QueueSettings, Retry, State
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange, Verdict
from daybreak.stores.memory import MemoryStore

SECOND = timedelta(seconds=1)


async def claim(store, **asked):
    return (await store.exchange(Exchange(claim=Claim(worker="w", **asked)))).leases


async def finish(store, outcome=Done()):  # noqa: B008 - frozen
    [lease] = await claim(store)
    await store.exchange(Exchange(settle=[settle(lease, outcome, chance=0.5, by="w")]))


# -- submit ------------------------------------------------------------------------------------------------------------


async def test_a_submitted_job_is_there_as_it_was_meant(client):
    job = await client.get(
        await client.submit(
            "mail", {"to": "bob", "at": (1, 2)}, queue="out", priority="high", tags=["a"], owner="ann", retry=5
        )
    )
    assert (job.spec.task, job.spec.queue, job.priority, job.state) == ("mail", "out", 2, State.QUEUED)
    assert (job.spec.by, job.spec.owner, job.spec.tags) == ("ann", "ann", ("a",))
    assert job.spec.options.retry == Retry(attempts=5)


def test_jobs_without_special_wishes_share_one_options_value(client):
    assert client.spec("t").options is DEFAULT_OPTIONS


def test_ids_rise_also_when_the_clock_is_set_back(client, world):
    before = [client.spec("t").id for _ in range(100)]
    world.now -= 10**12
    after = [client.spec("t").id for _ in range(100)]
    assert before + after == sorted({*before, *after})


@pytest.mark.parametrize(
    ("said", "error", "why"),
    [
        ({"priority": "urgent"}, BadInput, "is not a priority"),
        ({"delay": 5}, BadInput, "delay: a bare number has no unit; write '5s'"),
        ({"timeout": "soon"}, BadInput, "timeout: 'soon' is not a duration"),
        ({"expires_in": 60}, BadInput, "expires_in: a bare number"),
        ({"keep": 7}, BadInput, "keep: a bare number"),
        ({"run_at": datetime(2026, 1, 31)}, BadInput, "run_at: .* has no time zone"),  # noqa: DTZ001 - the point
        ({"run_at": "tomorrow"}, BadInput, "run_at: 'tomorrow' is not a datetime"),
        ({"delay": "1s", "run_at": datetime(2026, 1, 31, tzinfo=UTC)}, BadInput, "give delay or run_at, not both"),
        ({"retry": "eager"}, BadInput, "no such preset"),
        ({"tags": "urgent"}, BadInput, "tags='urgent' is not a list of strings"),
        ({"tags": [1]}, BadInput, "is not a list of strings"),
        ({"on_conflict": "merge"}, BadInput, "choose return, replace, raise or refuse"),
        ({"queue": ""}, BadInput, "is empty; a job needs"),
        ({"version": "2"}, BadInput, "version '2' must be an integer"),
        ({"meta": {"n": {1}}}, BadInput, "meta"),
        ({"timeout": "0s"}, BadInput, "timeout must be longer than 0"),
        ({"args": {"x": object()}}, NotEncodable, r"args\.x: a builtins\.object would not be decoded equal"),
        ({"args": {"x": "a" * 2_000_000}}, TooLarge, "pass the name of a file"),
    ],
)
async def test_what_is_wrong_with_a_job_is_said_before_the_store_sees_it(client, said, error, why):
    with pytest.raises(error, match=why):
        await client.submit("t", **said)
    assert sum((await client.count()).values()) == 0


async def test_a_feature_that_the_store_lacks_is_refused(client):
    spec = msgspec.structs.replace(client.spec("t"), after=("another",))
    with pytest.raises(Unsupported, match="needs dependencies"):
        await client.submit(spec)


async def test_a_full_queue_says_which_and_when_to_come_back(client):
    await client.set_queue("q", capacity=1)
    await client.submit("t", queue="q")
    with pytest.raises(QueueFull, match=r"queue 'q' is full: .* try again in 5 s") as refused:
        await client.submit("t", queue="q")
    assert (refused.value.queue, refused.value.retry_after) == ("q", 5 * SECOND)


async def test_a_key_stands_for_one_job_and_other_content_is_a_conflict(client):
    first = await client.submit("t", {"n": 1}, key="k")
    assert await client.submit("t", {"n": 1}, key="k") == first
    with pytest.raises(KeyConflict, match=f"'k' belongs to job {first}.*use a new key") as refused:
        await client.submit("t", {"n": 2}, key="k")
    assert refused.value.job == first


async def test_a_unique_name_is_refused_only_if_asked(client):
    first = await client.submit("t", unique="u")
    assert await client.submit("t", unique="u") == first
    with pytest.raises(UniqueConflict, match=f"job {first} is unfinished and holds the unique name 'u'"):
        await client.submit("t", unique="u", on_conflict="refuse")


async def test_in_bulk_each_job_answers_for_itself(client):
    await client.set_queue("q", capacity=2)
    answers = await client.submit_many(client.spec("t", queue="q") for _ in range(4))
    assert [a.verdict for a in answers] == [Verdict.NEW, Verdict.NEW, Verdict.FULL, Verdict.FULL]


async def test_bulk_goes_in_bounded_batches(world):
    class Counting(MemoryStore):
        sizes: tuple[int, ...] = ()

        async def insert(self, specs, **at):
            self.sizes += (len(specs),)
            return await super().insert(specs, **at)

    store = Counting(world)
    client = Client(store, world=world)
    await client.submit_many(client.spec("t") for _ in range(2500))
    assert store.sizes == (1000, 1000, 500)


class Flaky(MemoryStore):
    """Fails as told before, or after, it wrote."""

    def __init__(self, world, troubles, *, wrote: bool) -> None:
        super().__init__(world)
        self.troubles, self.wrote, self.calls = list(troubles), wrote, 0

    async def insert(self, specs, **at):
        await asyncio.sleep(0)  # as any store with a server, it gives others a turn
        self.calls += 1
        if not self.troubles:
            return await super().insert(specs, **at)
        if self.wrote:
            await super().insert(specs, **at)
        raise self.troubles.pop(0)


@pytest.mark.parametrize("wrote", [False, True], ids=["lost before", "lost after the commit"])
async def test_a_submit_that_was_interrupted_is_repeated_under_the_same_id(world, wrote):
    store = Flaky(world, [StoreUnavailable("gone"), OutcomeUnknown("gone")], wrote=wrote)
    client = Client(store, world=world)
    spec = client.spec("t")
    assert await client.submit(spec) == spec.id
    assert (await client.count())[State.QUEUED] == 1
    assert store.calls == 3
    assert len(world.slept) == 2


async def test_the_pauses_grow_and_in_the_end_the_client_gives_up(world):
    store = Flaky(world, [StoreUnavailable("gone")] * 100, wrote=False)
    with pytest.raises(StoreUnavailable, match="gone"):
        await Client(store, world=world, patience=10 * SECOND).submit("t")
    assert 10 * SECOND <= sum(world.slept, timedelta()) <= 14 * SECOND
    assert max(world.slept) <= 3 * SECOND


async def test_an_error_that_waiting_does_not_cure_is_raised_at_once(world):
    store = Flaky(world, [StoreFull("no space left")], wrote=False)
    with pytest.raises(StoreFull):
        await Client(store, world=world).submit("t")
    assert not world.slept


async def test_concurrent_submits_share_transactions(world):
    store = Flaky(world, [], wrote=False)
    client = Client(store, world=world)
    ids = await asyncio.gather(*(client.submit("t") for _ in range(500)))
    assert len(set(ids)) == 500
    assert store.calls <= 2


async def test_keep_nothing_means_nothing(client):
    job = await client.get(await client.submit("t", keep="0s"))
    assert job.spec.options.keep_completed == timedelta()


async def test_the_jobs_of_a_run_are_kept_until_it_is_deleted(client):
    assert client.spec("t", run="r").options.keep_completed is None
    assert client.spec("t", run="r", keep="1d").options.keep_failed == timedelta(days=1)


# -- look --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", ["get", "history", "cancel", "suspend", "resume", "retry", "remove"])
async def test_a_job_that_is_not_there_is_named(client, ask):
    with pytest.raises(JobNotFound, match="no job ghost: it was never submitted to this store, or it was removed"):
        await getattr(client, ask)("ghost")


async def test_an_unknown_filter_is_refused_and_the_known_ones_are_listed(client):
    with pytest.raises(BadInput, match=r"no filter named colour: write state, key, owner, priority, queue"):
        await client.find(colour="red")
    with pytest.raises(BadInput, match="no filter named states"):
        await client.count(states=["queued"])


async def test_an_unknown_state_is_refused_and_the_known_ones_are_listed(client):
    with pytest.raises(BadInput, match=r"no state named done: write one of scheduled, blocked, queued"):
        await client.find(state=["queued", "done"])


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_page_has_bounds(client, limit):
    with pytest.raises(BadInput, match="a page holds 1 to 1000 jobs"):
        await client.find(limit=limit)


def test_a_filter_reads_what_people_write():
    assert filter_of(state="queued", priority="high").priority == 2
    assert filter_of(state=State.QUEUED).states == {State.QUEUED}
    assert filter_of(state=("queued", State.FAILED)).states == {State.QUEUED, State.FAILED}
    assert filter_of().states == frozenset()


async def test_all_pages_are_walked_and_empty_states_count_zero(client):
    await client.submit_many(client.spec("t") for _ in range(1201))
    assert len([job async for job in client.find_all(state="queued")]) == 1201
    counts = await client.count()
    assert set(counts) == set(State)
    assert counts[State.QUEUED] == 1201
    assert counts[State.FAILED] == 0


async def test_wait_answers_when_the_job_is_final(client, store):
    job = await client.submit("t")
    waiting = asyncio.ensure_future(client.wait(job, timeout=30 * SECOND))
    await asyncio.sleep(0)
    await finish(store)
    assert (await waiting).state is State.COMPLETED


async def test_wait_gives_up_after_its_timeout(client):
    with pytest.raises(TimeoutError):
        await client.wait(await client.submit("t"), timeout=timedelta())


async def test_events_are_followed_from_the_oldest_kept(client, store):
    job = await client.submit("t")
    await finish(store)
    followed = client.events(None)
    kinds = [(await anext(followed))[0].kind for _ in range(3)]
    await followed.aclose()
    assert kinds == ["submitted", "started", "completed"]
    assert [event.kind for event in await client.history(job)] == kinds


async def test_a_follower_that_stops_inside_a_page_misses_nothing_when_it_goes_on(client, store):
    for _ in range(3):
        await client.submit("t")
    followed = client.events(None)
    first, cursor = await anext(followed)
    await followed.aclose()
    behind = await store.events(cursor)
    assert len({first.job} | {event.job for event in behind.events}) == 3


# -- change ------------------------------------------------------------------------------------------------------------


async def test_cancel_says_whether_it_was_done_or_asked(client, store):
    waiting, running = await client.submit("t", priority="low"), await client.submit("t")
    await claim(store)
    assert (await client.cancel(waiting)).verdict == "done"
    assert (await client.cancel(running)).verdict == "requested"
    assert (await client.cancel(waiting)).verdict == "refused"
    assert (await client.history(waiting))[-1].by == "ann"


async def test_a_cancelled_job_that_is_handed_back_folds_to_its_stored_state(client, store):
    job = await client.submit("t")
    [lease] = await claim(store)
    await client.cancel(job)
    await store.exchange(Exchange(settle=[settle(lease, HandedBack(), chance=0.5, by="w")]))
    stored, folded = await client.get(job), fold(await client.history(job))
    assert (stored.state, stored.attempt) == (folded.state, folded.attempt) == (State.CANCELLED, 0)


async def test_reprioritise_reads_names_and_refuses_nonsense(client):
    job = await client.submit("t")
    assert (await client.reprioritise(job, "high")).verdict == "done"
    assert (await client.get(job)).priority == 2
    with pytest.raises(BadInput, match="is not a priority"):
        await client.reprioritise(job, "now")


async def test_a_bulk_change_answers_how_many_it_changed(client):
    await client.submit_many(client.spec("t", queue="q") for _ in range(1100))
    await client.submit("t")
    assert await client.amend_all("cancel", queue="q") == 1100
    assert await client.amend_all("cancel", queue="q") == 0
    assert (await client.count())[State.QUEUED] == 1


# -- queues ------------------------------------------------------------------------------------------------------------


async def test_a_queue_that_nobody_set_has_the_defaults(client):
    assert await client.queue("q") == QueueSettings()


async def test_a_setting_changes_alone(client):
    await client.set_queue("q", max_running=3)
    await client.set_queue("q", weight=2)
    assert await client.queue("q") == QueueSettings(max_running=3, weight=2)
    await client.set_queue("q", max_running=None)
    assert await client.queue("q") == QueueSettings(weight=2)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"colour": "red"}, "queue 'q' has no setting colour"),
        ({"ranked": False}, "queue 'q' has no setting ranked"),
        ({"max_running": -1}, "max_running=-1 must be at least 0"),
        ({"max_running": "3"}, r"Expected `int \| null`, got `str`"),
        ({"max_running": 2.5}, r"Expected `int \| null`, got `float`"),
        ({"max_running": True}, r"Expected `int \| null`, got `bool`"),
        ({"capacity": -1}, "capacity=-1 must be at least 0"),
        ({"weight": 0}, "weight=0 must be at least 1"),
        ({"weight": None}, "Expected `int`"),
        ({"discipline": "lifo"}, "Invalid enum value 'lifo'"),
        ({"patience": "0s"}, "patience must be longer than 0"),
        ({"patience": 60}, "patience: a bare number has no unit; write '60s'"),
        ({"paused": "yes"}, "Expected `bool`, got `str`"),
    ],
)
async def test_a_wrong_setting_is_refused_and_changes_nothing(client, changes, why):
    with pytest.raises(BadInput, match=why):
        await client.set_queue("q", **changes)
    assert await client.queue("q") == QueueSettings()


async def test_a_paused_queue_gives_nothing_until_it_goes_on(client, store):
    await client.submit("t")
    await client.pause("default")
    assert await claim(store) == []
    await client.unpause("default")
    assert len(await claim(store)) == 1


async def test_a_new_discipline_reorders_what_waits(client, store, world):
    old = await client.submit("t", priority="low")
    world.pass_time(timedelta(hours=1))
    new = await client.submit("t", priority="high")
    settings = await client.set_queue("default", discipline="aging", patience="1m")
    assert settings == QueueSettings(discipline="aging", patience=timedelta(minutes=1))
    assert [lease.job for lease in await claim(store, limit=2)] == [old, new]


async def test_two_who_change_a_queue_at_once_lose_neither_change(store, world):
    one, two = Client(store, world=world), Client(store, world=world)
    await asyncio.gather(*(one.set_queue("q", weight=2), two.set_queue("q", capacity=9)))
    assert await one.queue("q") == QueueSettings(weight=2, capacity=9)


async def test_a_race_that_is_never_won_is_an_error_not_a_loop(world):
    class Contested(MemoryStore):
        async def put(self, puts):
            return [None for _ in puts]

    with pytest.raises(RecordChanged, match="queue 'q' was changed by someone else meanwhile"):
        await Client(Contested(world), world=world).set_queue("q", weight=2)

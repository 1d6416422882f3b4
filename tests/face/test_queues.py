"""A queue without workers: add, take, and say how it went."""

from __future__ import annotations

import asyncio
import gc
import threading
from datetime import timedelta
from decimal import Decimal

import pytest

from daybreak import (
    BadInput,
    Context,
    Daybreak,
    LeaseLost,
    Permanent,
    QueueFull,
    Retry,
    Secret,
    State,
    StoreUnavailable,
    Suspend,
    Transient,
)
from daybreak.api.job_changes import amend_ids
from daybreak.api.queues import Item, LeaseHandle, QueueCounts, bulk_changes, consumer
from daybreak.core.errors import JobNotFound, NotEncodable, WrongState
from daybreak.store.protocol import Extended, Reap
from daybreak.system.ports import RealWorld
from daybreak.testing import inline


@pytest.fixture(params=["memory", "sqlite"])
def app(request, tmp_path):
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    with Daybreak(url, by="ann") as app:
        yield app


@pytest.fixture
def queue(app):
    return app.queue("reports")


def store_of(app: Daybreak):
    async def store():
        return (await app.client()).store

    return app.portal.run(store())


# -- in ----------------------------------------------------------------------------------------------------------------


def test_what_is_added_is_durable_and_can_be_looked_at(queue):
    item = queue.add({"serial": 7}, id="r-7", priority="high", max_attempts=5, metadata={"station": "3"})
    assert item == queue.get("r-7")
    assert isinstance(item, Item)
    assert (item.id, item.data, item.state, item.priority) == ("r-7", {"serial": 7}, State.QUEUED, 2)
    assert (item.attempt, item.max_attempts, item.metadata) == (0, 5, {"station": "3"})
    assert queue.size() == 1


@pytest.mark.parametrize("data", [None, 1, "text", [1, (2, 3)], b"\0", Decimal("1.10"), {"a": {1: 2}}, Secret("x")])
def test_any_value_that_can_be_encoded_is_data(queue, data):
    assert queue.get(queue.add(data).id).data == data
    [lease] = queue.take()
    assert (lease.data, type(lease.data)) == (data, type(data))


def test_the_same_id_is_the_same_item(queue):
    first = queue.add("one", id="x")
    assert queue.add("two", id="x", priority=0) == first
    [lease] = queue.take()
    lease.complete()
    again = queue.add("one", id="x")
    assert (again.data, again.state) == ("one", State.COMPLETED)
    assert queue.take() == []


def test_an_id_of_another_queue_is_refused(app, queue):
    queue.add(1, id="x")
    with pytest.raises(BadInput, match="in queue 'reports'"):
        app.queue("other").add(1, id="x")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_attempts": -1}, "attempts"),
        ({"max_attempts": False}, "attempts"),
        ({"max_attempts": 2, "retry": 3}, "pass one"),
        ({"retry": "never"}, "no such preset"),
        ({"priority": 11}, "not a priority"),
        ({"delay": 5}, "write '5s'"),
        ({"metadata": {"n": (1, 2)}}, "cannot be kept"),
        ({"metadata": {"n": float("nan")}}, "cannot be kept"),
        ({"metadata": {"n": {1: 2}}}, "cannot be kept"),
        ({"metadata": {1: "n"}}, "is not text"),
        ({"id": ""}, "id"),
    ],
)
def test_what_cannot_be_right_is_refused(queue, options, told):
    with pytest.raises(BadInput, match=told):
        queue.add(1, **options)
    assert queue.size() == 0


def test_data_that_would_not_come_back_is_refused(queue):
    with pytest.raises(NotEncodable, match="data"):
        queue.add(object())


def test_a_queue_needs_a_name(app):
    with pytest.raises(BadInput, match="needs a name"):
        app.queue("")


def test_a_full_queue_refuses(queue):
    queue.set(capacity=1)
    queue.add(1)
    for words in ({}, {"id": "x"}):
        with pytest.raises(QueueFull):
            queue.add(2, **words)


# -- out ---------------------------------------------------------------------------------------------------------------


def test_the_most_urgent_is_taken_first_then_the_oldest(queue):
    for name, priority in (("b1", "low"), ("a1", "high"), ("b2", "low"), ("a2", "high"), ("c", 0)):
        queue.add(name, priority=priority)
    assert [lease.data for lease in queue.take(limit=10)] == ["c", "a1", "a2", "b1", "b2"]


def test_nothing_is_taken_twice(queue):
    for n in range(5):
        queue.add(n)
    one, two = queue.take(3), queue.take(3)
    assert [lease.data for lease in (*one, *two)] == [0, 1, 2, 3, 4]
    assert queue.take() == []
    assert {lease.lease.worker for lease in one} == {lease.lease.worker for lease in two}


def test_one_item_is_taken_by_its_id_and_the_others_keep_their_places(queue):
    first, second, third = (queue.add(n) for n in range(3))
    [taken] = queue.take(id=second.id)
    assert (taken.id, taken.attempt) == (second.id, 1)
    assert queue.take(id=second.id) == []
    assert queue.take(id="unknown") == []
    taken.complete()
    assert [lease.id for lease in queue.take(9)] == [first.id, third.id]


def test_jobs_of_tasks_are_not_taken_and_items_not_run(app, queue):
    @app.task(queue="reports")
    def work() -> str:
        return "worked"

    job, item = work.submit(), queue.add(1)
    assert [lease.id for lease in queue.take(10)] == [item.id]
    with app.worker(isolation="thread", processes=1):
        assert job.result("20s") == "worked"
    assert queue.get(job.id).data == {}
    assert queue.get(item.id).state is State.RUNNING


@pytest.mark.parametrize("limit", [0, 1001, True, "1"])
def test_a_limit_is_a_number_of_items(queue, limit):
    with pytest.raises(BadInput, match="limit"):
        queue.take(limit=limit)


def test_waiting_ends_when_an_item_comes(queue):
    assert queue.take() == []
    taken: list[LeaseHandle] = []
    waiting = threading.Thread(target=lambda: taken.extend(queue.take(wait="20s")))
    waiting.start()
    queue.add("late")
    waiting.join(20)
    assert [lease.data for lease in taken] == ["late"]


def test_waiting_ends_when_a_delayed_item_falls_due(queue):
    item = queue.add("later", delay="100ms")
    assert (item.state, item.run_at > item.created_at) == (State.SCHEDULED, True)
    assert [lease.data for lease in queue.take(wait="20s")] == ["later"]


def test_waiting_ends_with_its_time(queue):
    assert queue.take(wait="30ms") == []


async def test_who_stops_waiting_leaves_nothing_in_hand(queue, monkeypatch):
    """Cancelled between the claim's commit and its answer."""
    claimed = asyncio.Event()
    exchange = consumer.LocalSource.exchange

    async def slow(self, ended, want):
        answer = await exchange(self, ended, want)
        if want is not None:
            loop.call_soon_threadsafe(claimed.set)
            await asyncio.sleep(0.05)
        return answer

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(consumer.LocalSource, "exchange", slow)
    item = await queue.aadd(1)
    taking_ = asyncio.create_task(queue.atake(wait="20s"))
    await claimed.wait()
    taking_.cancel()
    await asyncio.gather(taking_, return_exceptions=True)
    async with asyncio.timeout(20):
        while (found := await queue.aget(item.id)).state is not State.QUEUED:  # noqa: ASYNC110 - another loop's doing
            await asyncio.sleep(0.005)
    assert found.attempt == 0


# -- outcomes ----------------------------------------------------------------------------------------------------------


def test_completed_with_a_result(app, queue):
    item = queue.add(1)
    [lease] = queue.take()
    assert (lease.attempt, lease.max_attempts, lease.priority, lease.fence) == (1, 3, 5, 1)
    lease.complete({"pages": 3})
    found = queue.get(item.id)
    assert (found.state, found.result, found.attempt) == (State.COMPLETED, {"pages": 3}, 1)
    assert app.job(item.id).result() == {"pages": 3}


def test_failed_is_tried_again_until_attempts_are_used_up(queue):
    item = queue.add(1, max_attempts=2)
    [lease] = queue.take()
    lease.fail("broken")
    found = queue.get(item.id)
    assert (found.state, found.error, found.attempt) == (State.SCHEDULED, "Error: broken", 1)
    [lease] = queue.take(wait="20s")
    assert lease.attempt == 2
    lease.fail(ValueError("broken for good"))
    found = queue.get(item.id)
    assert (found.state, found.reason, found.error) == (State.FAILED, "exhausted", "ValueError: broken for good")


def test_an_item_has_its_own_retry(queue):
    item = queue.add(1, retry=Retry(attempts=4, delay=timedelta(hours=1), cap=timedelta(hours=1), strategy="fixed"))
    [lease] = queue.take()
    assert lease.max_attempts == 4
    lease.fail("busy")
    found = queue.get(item.id)
    assert (found.state, found.max_attempts) == (State.SCHEDULED, 4)
    assert timedelta(minutes=59) < found.run_at - found.started_at <= timedelta(minutes=61)


@pytest.mark.parametrize("error", ["text", ValueError("v"), KeyError("k"), Transient("t")])
def test_an_error_is_tried_again_whatever_it_is(queue, error):
    item = queue.add(1)
    queue.take()[0].fail(error)
    assert queue.get(item.id).state is State.SCHEDULED


@pytest.mark.parametrize(("error", "words"), [("text", {"permanent": True}), (Permanent("p"), {})])
def test_a_permanent_failure_is_not_tried_again(queue, error, words):
    item = queue.add(1)
    queue.take()[0].fail(error, **words)
    assert (queue.get(item.id).state, queue.get(item.id).reason) == (State.FAILED, "error")


def test_not_before_retry_after(queue):
    item = queue.add(1)
    queue.take()[0].fail("busy", retry_after="1h")
    found = queue.get(item.id)
    assert found.run_at - found.started_at >= timedelta(hours=1)


def test_suspended_until_someone_resumes_it(app, queue):
    item = queue.add(1)
    queue.take()[0].suspend("which printer?")
    found = queue.get(item.id)
    assert (found.state, found.note, found.attempt) == (State.SUSPENDED, "which printer?", 0)
    assert queue.take() == []
    app.job(item.id).resume()
    assert [lease.id for lease in queue.take()] == [item.id]


def test_released_goes_back_where_it_was_uncharged(queue):
    first, second = queue.add(1), queue.add(2)
    queue.take()[0].release()
    assert queue.position(first.id).ahead == 0
    assert queue.get(first.id).attempt == 0
    assert [lease.id for lease in queue.take(2)] == [first.id, second.id]


def test_an_attempt_has_one_outcome(queue):
    queue.add(1)
    [lease] = queue.take()
    lease.complete()
    for again in (lease.complete, lease.release, lease.extend, lambda: lease.fail("x"), lambda: lease.suspend("x")):
        with pytest.raises(WrongState, match="one outcome"):
            again()


def test_a_result_that_cannot_be_kept_is_refused_and_the_item_stays_in_hand(queue):
    item = queue.add(1)
    [lease] = queue.take()
    with pytest.raises(NotEncodable):
        lease.complete(object())
    assert queue.get(item.id).state is State.RUNNING
    lease.complete()


def test_a_lost_lease_cannot_complete(app, queue):
    item = queue.add(1)
    [lease] = queue.take()
    lose(app, lease)
    with pytest.raises(LeaseLost, match=item.id):
        lease.complete()
    with pytest.raises(LeaseLost):
        lease.extend()
    assert queue.get(item.id).state is State.RUNNING


def lose(app: Daybreak, lease: LeaseHandle) -> None:
    """Someone else takes the lease over, as a reaper does once it ran out."""
    store = store_of(app)

    async def reap():
        from datetime import UTC, datetime

        later = datetime.now(UTC) + timedelta(days=1)
        taken = await store.reap(Reap(worker="reaper", watched_for=timedelta(days=1)), now=later)
        assert [one.job for one in taken] == [lease.id]

    app.portal.run(reap())


def test_a_cancelled_item_ends_cancelled_whatever_is_said(app, queue):
    item = queue.add(1)
    [lease] = queue.take()
    assert app.job(item.id).cancel().verdict == "requested"
    lease.extend()
    assert lease.cancelled
    lease.complete("done")
    assert (queue.get(item.id).state, queue.get(item.id).result) == (State.CANCELLED, None)


def test_an_outcome_is_told_again_while_the_store_is_out_of_reach(app, queue, monkeypatch):
    item = queue.add(1)
    [lease] = queue.take()
    exchange, troubles = consumer.LocalSource.exchange, [1, 2, 3]

    async def sometimes(self, ended, want):
        if troubles:
            troubles.pop()
            raise StoreUnavailable("away")
        return await exchange(self, ended, want)

    monkeypatch.setattr(consumer.LocalSource, "exchange", sometimes)
    lease.complete()
    assert not troubles
    assert queue.get(item.id).state is State.COMPLETED


# -- as a block --------------------------------------------------------------------------------------------------------


def test_a_block_completes_unless_an_outcome_was_given(queue):
    items = [queue.add(n) for n in range(3)]
    for lease, end in zip(
        queue.take(3), (lambda _: None, lambda it: it.release(), lambda it: it.complete(5)), strict=True
    ):
        with lease as inside:
            assert inside is lease
            end(inside)
    assert [queue.get(item.id).state for item in items] == [State.COMPLETED, State.QUEUED, State.COMPLETED]
    assert queue.get(items[2].id).result == 5


@pytest.mark.parametrize(
    ("trouble", "state", "attempt"),
    [
        (ConnectionError("gone"), State.SCHEDULED, 1),
        (ValueError("wrong"), State.FAILED, 1),  # judged as a task's error would be
        (Permanent("never"), State.FAILED, 1),
        (Suspend("hold"), State.SUSPENDED, 0),
        (KeyboardInterrupt(), State.QUEUED, 0),
        (SystemExit(), State.QUEUED, 0),
    ],
)
def test_an_exception_in_a_block_is_its_outcome_and_goes_on(queue, trouble, state, attempt):
    item = queue.add(1)
    with pytest.raises(type(trouble)), queue.take()[0]:
        raise trouble
    assert (queue.get(item.id).state, queue.get(item.id).attempt) == (state, attempt)


def test_an_exception_keeps_its_traceback_with_the_item(app, queue):
    item = queue.add(1)
    with pytest.raises(ZeroDivisionError), queue.take()[0]:
        1 / 0  # noqa: B018
    assert "1 / 0" in app.job(item.id).info().failure.traceback


def test_a_block_that_lost_its_lease_says_so(app, queue, caplog):
    queue.add(1)
    [lease] = queue.take()
    with pytest.raises(LeaseLost), lease:
        lose(app, lease)


def test_a_block_whose_lease_was_lost_unnoticed_by_its_code_says_so(app, queue, until):
    item = queue.add(1)
    [lease] = queue.take()
    with pytest.raises(LeaseLost), lease:
        lease.on_extended(Extended(held=False))  # as a heartbeat in the background does
    assert queue.get(item.id).state is State.RUNNING


def test_a_block_s_own_error_is_what_is_heard_of_also_when_the_lease_was_lost(app, queue, caplog):
    queue.add(1)
    [lease] = queue.take()
    with pytest.raises(KeyError), lease:  # noqa: PT012
        lose(app, lease)
        raise KeyError("mine")
    assert "could not report its outcome" in caplog.text


async def test_an_async_block_does_the_same(queue):
    items = [await queue.aadd(n) for n in range(3)]
    one, two, three = await queue.atake(3)
    async with one:
        pass
    with pytest.raises(ConnectionError):
        async with two:
            raise ConnectionError
    with pytest.raises(asyncio.CancelledError):
        async with three:
            raise asyncio.CancelledError
    states = [(await queue.aget(item.id)).state for item in items]
    assert states == [State.COMPLETED, State.SCHEDULED, State.QUEUED]


# -- kept alive --------------------------------------------------------------------------------------------------------


@pytest.fixture
def short_leases(monkeypatch):
    monkeypatch.setattr(consumer, "LEASE_FOR", timedelta(milliseconds=400))


@pytest.mark.usefixtures("short_leases")
def test_a_lease_is_kept_alive_in_the_background(app, queue, until):
    item = queue.add(1)
    [lease] = queue.take()
    first = app.job(item.id).info().leased_until
    until(lambda: app.job(item.id).info().leased_until > first + timedelta(milliseconds=800))
    lease.complete()
    assert [event.kind for event in app.job(item.id).history()] == ["submitted", "started", "completed"]


@pytest.mark.usefixtures("short_leases")
def test_a_handle_that_was_dropped_is_not_kept_alive_and_its_item_comes_back(app, queue):
    item = queue.add(1)
    queue.take()
    gc.collect()
    [lease] = queue.take(wait="20s")
    assert (lease.id, lease.attempt, lease.fence > 1) == (item.id, 2, True)
    lease.complete()


def test_extend_keeps_it_for_another_lease(app, queue):
    item = queue.add(1)
    [lease] = queue.take()
    first = app.job(item.id).info().leased_until
    lease.extend()
    assert app.job(item.id).info().leased_until > first


def test_an_attempt_took_as_long_as_its_item_was_held(app, queue):
    queue.add(1, flight={"n": 1})
    queue.add(2, flight={"n": 2}, max_attempts=1)
    done, failed = queue.take(2)
    for lease in (done, failed):
        lease._taken_at -= 5_000_000  # it was taken 5 seconds ago
    done.complete("known")
    failed.fail("no")
    assert app.stats().queue.average_run >= timedelta(seconds=5)
    assert queue.add(1, flight={"n": 1}).result == "known"
    assert app.cache.stats().saved >= timedelta(seconds=5)


def test_what_is_in_hand_when_the_app_closes_is_handed_back(app, queue, tmp_path):
    if app.settings.url == "memory://":
        pytest.skip("gone with the app")
    item = queue.add(1)
    [lease] = queue.take()
    app.close()
    found = queue.get(item.id)
    assert (found.state, found.attempt) == (State.QUEUED, 0)
    with pytest.raises(LeaseLost):
        lease.complete()
    assert queue.get(item.id).state is State.QUEUED


# -- looking and tidying -----------------------------------------------------------------------------------------------


def test_lists_by_state(queue):
    for n, priority in enumerate(("low", "high", "normal")):
        queue.add(n, priority=priority)
    queue.add(3, delay="1h")
    queue.take()[0].complete()
    assert [item.data for item in queue.list("queued")] == [2, 0]
    assert [item.data for item in queue.list(State.SCHEDULED)] == [3]
    assert [item.data for item in queue.list(["queued", "completed"])] == [2, 1, 0]
    assert {item.data for item in queue.list()} == {0, 1, 2, 3}
    with pytest.raises(BadInput, match="no state named pending"):
        queue.list("pending")


def test_stats_count_everything(app, queue):
    assert queue.stats() == QueueCounts(
        by_state=dict.fromkeys(map(str, State), 0),
        by_priority=dict.fromkeys(("emergency", "critical", "high", "normal", "low", "background"), 0),
        active=0,
        total=0,
        success_rate=None,
        oldest_wait=None,
    )
    for n in range(8):
        queue.add(n, priority=n, max_attempts=1)
    leases = queue.take(5)
    leases[0].complete()
    leases[1].complete()
    leases[2].complete()
    leases[3].fail("x")
    leases[4].suspend("y")
    app.queue("other").add(1)
    stats = queue.stats()
    assert {state: n for state, n in stats.by_state.items() if n} == {
        "queued": 3, "suspended": 1, "completed": 3, "failed": 1,
    }  # fmt: skip
    assert {name: n for name, n in stats.by_priority.items() if n} == {"normal": 3, "low": 1}
    assert (stats.active, stats.total, stats.success_rate) == (4, 8, 0.75)
    assert stats.oldest_wait > timedelta()
    assert queue.size() == 4


def test_the_oldest_wait_is_over_all_priorities():
    with Daybreak("memory://") as app, inline(app) as run:
        queue = app.queue("reports")
        for priority in ("normal", "low", "high"):
            queue.add(1, priority=priority)
            run.advance("10m")
        assert queue.stats().oldest_wait == timedelta(minutes=30)
        queue.take(2)
        assert queue.stats().oldest_wait == timedelta(minutes=20)


def test_only_finished_items_are_removed(queue):
    done, waiting = queue.add(1), queue.add(2)
    queue.take()[0].complete()
    queue.remove(done.id)
    with pytest.raises(JobNotFound):
        queue.get(done.id)
    with pytest.raises(WrongState, match="cancel it first"):
        queue.remove(waiting.id)
    with pytest.raises(JobNotFound):
        queue.remove("nothing")


def test_completed_and_failed_are_cleared_apart(app, queue):
    for n in range(6):
        queue.add(n, max_attempts=1)
    other = app.queue("other").add(1)
    app.queue("other").take()[0].complete()
    for n, lease in enumerate(queue.take(5)):
        lease.complete() if n < 3 else lease.fail("x")
    assert (queue.clear_completed(), queue.clear_completed()) == (3, 0)
    assert queue.stats().by_state["failed"] == 2
    assert queue.clear_failed() == 2
    assert [item.data for item in queue.list()] == [5]
    assert app.queue("other").get(other.id).state is State.COMPLETED


def test_what_is_not_in_this_queue_is_not_found_here(app, queue):
    item = app.queue("other").add(1)
    for ask in (queue.get, queue.position, queue.remove):
        with pytest.raises(JobNotFound):
            ask(item.id)


def test_a_paused_queue_gives_nothing(queue):
    queue.add(1)
    assert queue.pause().paused
    assert queue.take() == []
    assert queue.settings().paused
    assert not queue.resume().paused
    assert len(queue.take()) == 1


def test_settings_change_while_it_is_in_use(queue):
    assert queue.set(max_running=1, discipline="aging", patience="10m").max_running == 1
    queue.add(1)
    queue.add(2)
    assert len(queue.take(2)) == 1
    with pytest.raises(BadInput, match="no setting"):
        queue.set(max_runing=1)


# -- more of what a queue does -----------------------------------------------------------------------------------------


def failed(queue, *ids, **options):
    """Items that have failed for good."""
    for name in ids:
        queue.add(name, id=name, **options)
    for lease in queue.take(100):
        lease.fail("no", permanent=True)


@pytest.mark.parametrize(
    "value", [1, 1.5, True, None, "text", "json:1", 'json:"x"', "json:", "17", ["a", {"b": None}], {"a": [1, 2]}, 2**40]
)
def test_metadata_may_be_any_json(app, queue, value):
    queue.add(0, id="x", metadata={"m": value, "station": "3"})
    assert queue.get("x").metadata == app.job("x").info().meta == {"m": value, "station": "3"}
    assert type(queue.get("x").metadata["m"]) is type(value)
    [lease] = queue.take()
    assert lease.metadata == {"m": value, "station": "3"}


def test_a_task_gets_metadata_as_it_was_given(app):
    seen = []

    @app.rule
    def note(admission) -> dict:
        seen.append(admission.meta)
        return {"meta": {**admission.meta, "ruled": [1]}}

    @app.task
    def look(ctx: Context) -> dict:
        return ctx.meta

    with inline(app):
        assert look.using(meta={"n": 1, "s": "json:x"}).submit().result() == {"n": 1, "s": "json:x", "ruled": [1]}
    assert seen == [{"n": 1, "s": "json:x"}]


def test_an_item_was_updated_when_it_last_changed(queue):
    item = queue.add(1, id="x")
    assert item.updated_at == item.created_at
    [lease] = queue.take()
    started = queue.get("x").updated_at
    assert started == queue.get("x").started_at
    lease.progress(0.5)
    assert queue.get("x").updated_at == started
    lease.complete()
    assert queue.get("x").updated_at == queue.get("x").finished_at


def test_no_attempts_at_all_means_one_and_no_retry(queue):
    assert queue.add(1, id="x", max_attempts=0).max_attempts == 1
    [lease] = queue.take()
    lease.fail(ConnectionError("busy"), retry_after="1h")
    assert (queue.get("x").state, queue.get("x").reason) == (State.FAILED, "exhausted")


def test_failed_items_are_retried_with_all_their_attempts(queue):
    failed(queue, "a", "b", max_attempts=2)
    queue.add("c", id="c")
    assert queue.retry_failed() == 2
    assert [item.id for item in queue.list("queued")] == ["a", "b", "c"]
    assert queue.retry_failed() == 0
    assert [lease.attempt for lease in queue.take(3)] == [1, 1, 1]


def test_failed_items_are_retried_at_a_rate_the_most_urgent_first(tmp_path):
    slept = []

    class World(RealWorld):
        async def sleep(self, span):
            if span == timedelta(seconds=12):
                slept.append([item.id for item in await queue.alist("queued")])
                if len(slept) == 2:
                    await app.job("b").aremove()
                return
            await super().sleep(span)

    with Daybreak(f"sqlite:///{tmp_path}/jobs.db", world=World()) as app:
        queue = app.queue("reports")
        failed(queue, "a", "b")
        failed(queue, "u", priority="high")
        failed(queue, "c")
        assert queue.retry_failed(rate="5/min") == 3
        assert slept == [["u"], ["u", "a"], ["u", "a"]]
        assert [item.id for item in queue.list("queued")] == ["u", "a", "c"]


@pytest.mark.parametrize("rate", ["5", 5, "fast", "0/s"])
def test_a_rate_that_is_none_is_refused(queue, rate):
    with pytest.raises(BadInput, match="retry_failed of queue 'reports'"):
        queue.retry_failed(rate=rate)


def test_items_are_cleared_by_state_and_others_stay(app, queue):
    failed(queue, "f")
    queue.add("q", id="q")
    queue.add("d", id="d", delay="1h")
    queue.add("s", id="s")
    app.job("s").suspend()
    other = app.queue("other").add(1).id
    [lease] = queue.take()
    assert lease.id == "q"
    assert queue.clear("scheduled") == 1
    with pytest.raises(JobNotFound):
        queue.get("d")
    with pytest.raises(BadInput, match="release"):
        queue.clear(["running", "failed"])
    with pytest.raises(BadInput, match="no state"):
        queue.clear("pending")
    assert queue.get("f").state is State.FAILED
    assert queue.clear(["failed", "suspended"]) == 2
    queue.add("r", id="r")
    assert queue.clear() == 1
    assert [item.id for item in queue] == ["q"]
    lease.complete()
    assert (queue.clear(), queue.clear()) == (1, 0)
    assert app.queue("other").get(other).state is State.QUEUED


def test_an_item_taken_meanwhile_is_not_cleared(app, queue, monkeypatch):
    queue.add(1, id="x")
    held = []

    async def amend_late(client, change, ids, **options):
        if change.action == "cancel" and not held:
            held.extend(await queue.atake())
            now = await client.store.get(ids)
            assert [job.state for job in now] == [State.RUNNING]
        return await amend_ids(client, change, ids, **options)

    monkeypatch.setattr(bulk_changes, "amend_ids", amend_late)
    assert queue.clear("queued") == 0
    [lease] = held
    assert queue.get("x").state is State.RUNNING
    lease.release()


def test_a_queue_is_empty_when_nothing_is_unfinished(queue):
    assert queue.is_empty()
    queue.add(1, delay="1h", id="x")
    assert not queue.is_empty()
    queue.clear("scheduled")
    queue.add(1)
    [lease] = queue.take()
    assert not queue.is_empty()
    lease.complete()
    assert queue.is_empty()


@pytest.mark.parametrize("discipline", ["fifo", "aging"])
def test_iteration_is_a_snapshot_in_the_order_of_taking(app, queue, discipline):
    queue.set(discipline=discipline)
    queue.add(0, id="late", priority="emergency", delay="1h")
    for name, priority in (("c", 7), ("b", 5), ("a", 2), ("b2", 5)):
        queue.add(name, id=name, priority=priority)
    done = queue.add("done", id="done", priority=0)
    [lease] = queue.take()
    assert lease.id == done.id
    lease.complete()
    items = iter(queue)
    assert next(items).id == "a"
    queue.add(1, id="new", priority=0)
    assert [item.id for item in items] == ["b", "b2", "c", "late"]
    assert next(iter(queue)).id == "new"


def test_a_stuck_item_is_released_from_outside(app, queue):
    queue.add(1, id="x")
    [lease] = queue.take()
    queue.release("x", note="its station hangs")
    assert (queue.get("x").state, queue.get("x").attempt) == (State.QUEUED, 0)
    with pytest.raises(WrongState, match="taken"):
        queue.release("x")
    assert len(queue.take()) == 1
    with pytest.raises(LeaseLost):
        lease.complete()
    assert queue.get("x").state is State.RUNNING
    queue.release("x", charge=True)
    assert queue.get("x").attempt == 1
    with pytest.raises(JobNotFound):
        app.queue("other").release("x")


def test_hooks_of_a_queue_are_called_at_once_for_its_items_only(app, queue):
    told = []

    @queue.on("added")
    def added(event):
        told.append(("added", event.job, event.kind))

    @queue.on("updated", "removed")
    def changed(event):
        told.append((event.kind, event.job, event.queue))

    @app.queue("other").on("*")
    def other(event):
        told.append(("other", event.job, event.kind))

    queue.add(1, id="x", max_attempts=1)
    queue.add(1, id="x")  # it is there already
    [lease] = queue.take()
    lease.fail("no")
    queue.retry_failed()
    queue.take()
    queue.release("x")
    app.job("x").cancel()
    queue.remove("x")
    app.queue("other").add(1, id="y")
    queue.add(1, id="z")
    queue.clear()
    app.queue("other").clear()
    app.hooks.flush()
    assert told == [
        ("added", "x", "submitted"),
        *((kind, "x", "reports") for kind in ("started", "failed", "retried", "started", "released", "cancelled")),
        ("removed", "x", "reports"),
        ("other", "y", "submitted"),
        ("added", "z", "submitted"),
        ("removed", "z", "reports"),
        ("other", "y", "removed"),
    ]
    for words in ((), ("add",), ("completed",)):
        with pytest.raises(BadInput, match="added, updated, removed"):
            queue.on(*words)


# -- the async twins ---------------------------------------------------------------------------------------------------


async def test_the_async_twins_do_the_same(app, queue):
    item = await queue.aadd("x", id="one", priority="low")
    await queue.aadd("y", max_attempts=1)
    assert (await queue.asize(), (await queue.aposition("one")).ahead) == (2, 0 if item.priority == 5 else 1)
    y, x = await queue.atake(2)
    await x.aextend()
    await x.acomplete(1)
    await y.afail("no")
    assert (await queue.aget("one")).result == 1
    assert len(await queue.alist("failed")) == 1
    assert (await queue.astats()).success_rate == 0.5
    assert (await queue.aclear_failed(), await queue.aclear_completed()) == (1, 1)
    assert (await queue.apause()).paused
    assert not (await queue.aresume()).paused
    assert (await queue.aset(weight=2)).weight == 2
    assert (await queue.asettings()).weight == 2
    await queue.aadd("z", id="z")
    [z] = await queue.atake(wait="20s")
    await z.asuspend("later")
    await app.job("z").aresume()
    [z] = await queue.atake()
    await z.arelease()
    await app.job("z").acancel()
    await queue.aremove("z")
    assert (await queue.asize(), await queue.ais_empty()) == (0, True)
    await queue.aadd("f", id="f", max_attempts=0)
    [f] = await queue.atake()
    await queue.arelease("f")
    [f] = await queue.atake()
    await f.afail("no")
    assert await queue.aretry_failed() == 1
    assert [item.id async for item in queue] == ["f"]
    assert await queue.aclear("queued") == 1
    await app.aclose()


def test_many_threads_take_each_item_once(queue):
    for n in range(60):
        queue.add(n)
    seen: list[int] = []

    def work() -> None:
        while leases := queue.take(limit=3):
            for lease in leases:
                with lease:
                    seen.append(lease.data)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(seen) == list(range(60))
    assert queue.stats().by_state["completed"] == 60

"""Every setting of the enhanced-locking document has its effect; its routes answer with the names of its Go types."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace
from server_world import LOCAL, problem

from daybreak import BadInput, Daybreak, JobFailed, Priority, Transient
from daybreak.core.errors import LockTimeout, StoreUnavailable
from daybreak.core.units import moment
from daybreak.policy.retry import delay_for
from daybreak.server import asgi
from daybreak.server.access.tokens import create_token
from daybreak.testing import HandClock, inline

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples" / "infrastructure_locks"))

import enhanced_locking as layer  # noqa: E402 - it stands beside its script, as a reader's own would
from enhanced_locking import Project, PullRequest, QueueConfig, TimeoutConfig, TimeoutType  # noqa: E402
from enhanced_locking.batching import Batches  # noqa: E402
from enhanced_locking.queueing import is_worth_a_retry  # noqa: E402
from enhanced_locking.routes import routes_of  # noqa: E402
from enhanced_locking.weights import Weights  # noqa: E402

SECOND, MS = timedelta(seconds=1), timedelta(milliseconds=1)
BASE = 60 * SECOND
NETWORK = Project("acme/infra", "network")
PULL = PullRequest(1, "add a subnet", "develop")
LEVELS = [Priority.EMERGENCY, Priority.CRITICAL, Priority.HIGH, Priority.NORMAL, Priority.LOW]
DOCUMENTED = dict(zip(LEVELS, (50, 20, 10, 5, 1), strict=True))


@pytest.fixture
async def app(tmp_path):
    app = Daybreak(str(tmp_path / "locks.db"), by="server")
    yield app
    await app.aclose()


# -- priorities --------------------------------------------------------------------------------------------------------


def test_every_number_of_the_document_and_back():
    assert {number: layer.priority_of(number) for number in (4, 3, 2, 1, 0)} == {
        4: Priority.EMERGENCY, 3: Priority.CRITICAL, 2: Priority.HIGH, 1: Priority.NORMAL, 0: Priority.LOW,
    }  # fmt: skip
    assert [layer.number_of(layer.priority_of(number)) for number in range(5)] == [0, 1, 2, 3, 4]


def test_every_priority_has_a_number_of_the_document():
    assert [layer.number_of(priority) for priority in range(11)] == [4, 3, 2, 2, 1, 1, 1, 0, 0, 0, 0]
    assert layer.number_of("emergency") == 4


@pytest.mark.parametrize("number", [5, -1, True, False, 1.0, "4", None])
def test_other_numbers_are_refused(number):
    with pytest.raises(BadInput, match=r"is not a priority of the document: write 4 \(Emergency\)"):
        layer.priority_of(number)


@pytest.mark.parametrize("priority", [11, -1, True, "urgent", None])
def test_other_priorities_are_refused(priority):
    with pytest.raises(BadInput, match="is not a priority"):
        layer.number_of(priority)


# -- priority_weights --------------------------------------------------------------------------------------------------


def test_weights_are_ranks_in_proportion_and_back():
    weights = Weights(DOCUMENTED)
    assert [weights.rank(level) for level in LEVELS] == [0, 6, 8, 9, 10]
    assert [weights.level(weights.rank(level)) for level in LEVELS] == LEVELS
    close = Weights(dict(zip(LEVELS, (1000, 999, 3, 2, 1), strict=True)))
    assert [close.rank(level) for level in LEVELS] == [0, 1, 8, 9, 10]
    same = Weights(dict.fromkeys(LEVELS, 7))
    assert {same.rank(level) for level in LEVELS} == {5}


@pytest.mark.parametrize(
    ("weights", "named"),
    [
        ({Priority.HIGH: 10}, "each of EMERGENCY"),
        (dict(zip(LEVELS, (5, 4, 3, 2, 0), strict=True)), "1 or more"),
        (dict(zip(LEVELS, (5, 4, 3, 9, 1), strict=True)), "HIGH weighs 3, less than the level below it, 9"),
    ],
)
def test_weights_that_cannot_be_right_are_named(weights, named):
    with pytest.raises(BadInput, match=named):
        QueueConfig(priority_weights=weights)


@pytest.mark.parametrize(("weights", "order"), [(None, [1, 0]), (DOCUMENTED, [0, 1])])
async def test_with_weights_a_light_request_is_overtaken_only_for_a_while(app, weights, order):
    """A low request came 2 ms of waiting time before a high one: the weights give that one a head start of 2 ms / 5."""
    config = QueueConfig(priority_weights=weights, max_wait_time=20 * SECOND, enable_batching=False)
    queue = layer.PriorityQueue(config, app)
    held = await queue.enqueue(NETWORK, "prod", PULL, "ann")
    if weights is not None:  # the unit of the head start, so short that the test need not wait
        await app.queue("lock").aset(patience=MS)
    low = await queue.enqueue(NETWORK, "prod", PULL, "bob", "low")
    await asyncio.sleep(0.05)
    high = await queue.enqueue(NETWORK, "prod", PULL, "cid", "high")
    assert [await low.position(), await high.position()] == order
    status = await layer.queue_status(app, config)
    assert status["priority_distribution"] == {"emergency": 0, "critical": 0, "high": 1, "normal": 0, "low": 1}
    for item in (high, low, held):
        await item.cancel()


async def test_weights_set_the_discipline_of_the_queue(app):
    for weights, discipline in ((DOCUMENTED, "aging"), (None, "fifo")):
        queue = layer.PriorityQueue(QueueConfig(priority_weights=weights), app)
        await (await queue.enqueue(NETWORK, "prod", PULL, "ann")).cancel()
        settings = await app.queue("lock").asettings()
        assert settings.discipline == discipline
        assert weights is None or settings.patience == timedelta(minutes=1)


# -- batching ----------------------------------------------------------------------------------------------------------


async def test_a_burst_goes_in_full_batches_and_a_lone_request_at_once():
    batches = Batches(10, timedelta(hours=1))
    await batches.turn(5)
    waiting = [asyncio.create_task(batches.turn(5)) for _ in range(9)]
    await asyncio.sleep(0)
    assert batches.sizes == [1]
    await batches.turn(5)
    await asyncio.gather(*waiting)
    assert batches.sizes == [1, 10]


async def test_an_interval_ends_a_batch_that_is_not_full():
    batches = Batches(10, 20 * MS)
    async with asyncio.timeout(20):
        for _ in range(3):
            await batches.turn(5)
    assert batches.sizes == [1, 1, 1]


async def test_an_emergency_does_not_wait_and_the_most_urgent_goes_first():
    batches, order = Batches(10, timedelta(hours=1)), []

    async def ask(priority):
        await batches.turn(priority)
        order.append(priority)

    await ask(5)
    await asyncio.gather(*(ask(priority) for priority in (7, 2, 5, 0)))
    assert (batches.sizes, order) == ([1, 4], [5, 0, 2, 5, 7])


async def test_a_request_that_is_cancelled_leaves_its_batch():
    batches = Batches(2, timedelta(hours=1))
    await batches.turn(5)
    gone = asyncio.create_task(batches.turn(5))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    await asyncio.gather(batches.turn(5), batches.turn(5))
    assert batches.sizes == [1, 2]


@pytest.mark.parametrize(("batching", "sizes"), [(True, [1, 3]), (False, [1, 1, 1, 1])])
async def test_the_queue_sends_requests_as_its_config_says(app, batching, sizes):
    config = QueueConfig(
        batch_processing_size=3, processing_interval=timedelta(hours=1), enable_batching=batching
    )  # fmt: skip
    queue = layer.PriorityQueue(config, app)
    first = await queue.enqueue(NETWORK, "0", PULL, "ann")
    items = await asyncio.gather(*(queue.enqueue(NETWORK, str(n), PULL, "ann") for n in (1, 2, 3)))
    assert queue.batches.sizes == sizes
    for item in (first, *items):
        await item.cancel()


@pytest.mark.parametrize("wrong", [{"batch_processing_size": 0}, {"processing_interval": -MS}, {"max_retries": -1}])
def test_numbers_that_cannot_be_right_are_refused(wrong):
    with pytest.raises(BadInput, match="QueueConfig"):
        QueueConfig(**wrong)


# -- max_retries and retry_count ---------------------------------------------------------------------------------------


@pytest.fixture
def failing(app, monkeypatch):
    """Locks of the app whose first requests fail, as when the store is away."""
    left, real = [0], app.lock

    def lock(*names, **how):
        made = real(*names, **how)
        ask = made.aacquire

        async def aacquire():
            if left[0]:
                left[0] -= 1
                raise StoreUnavailable("away")
            return await ask()

        made.aacquire = aacquire
        return made

    monkeypatch.setattr(app, "lock", lock)
    return left


QUICK = layer.RetryPolicy(base_delay=MS)


@pytest.mark.parametrize(
    ("failures", "retries", "is_granted"), [(2, 3, True), (3, 3, True), (4, 3, False), (1, 0, False)]
)
async def test_a_request_that_the_store_could_not_take_is_sent_again(app, failing, failures, retries, is_granted):
    failing[0] = failures
    queue = layer.PriorityQueue(QueueConfig(max_retries=retries), app, retries=QUICK)
    if not is_granted:
        with pytest.raises(StoreUnavailable):
            await queue.enqueue(NETWORK, "prod", PULL, "ann")
        return
    item = await queue.enqueue(NETWORK, "prod", PULL, "ann")
    result = await item.result()
    assert (result.success, item.retry_count, item.priority) == (True, failures, Priority.NORMAL)
    await item.release()


def test_an_answer_is_not_a_reason_to_ask_again():
    assert is_worth_a_retry(StoreUnavailable("away"))
    assert not is_worth_a_retry(LockTimeout("prod", "1 s"))


# -- time limits -------------------------------------------------------------------------------------------------------


def limit_after(seconds, times, **config):
    took = [timedelta(seconds=seconds)] * times
    return layer.calculate_adaptive_timeout(BASE, took, TimeoutConfig(**config)) / BASE


def test_each_adaptive_setting_moves_the_limit():
    assert limit_after(0.1, 200, enable_adaptive_timeout=False) == 1.0
    assert limit_after(0.1, 200, min_timeout_multiplier=0.25) == 0.25
    assert limit_after(900, 200, max_timeout_multiplier=5.0) == 5.0
    assert limit_after(900, 60) == pytest.approx(2.0)
    assert limit_after(900, 60, adaptation_factor=0.2) == pytest.approx(3.0)
    assert limit_after(900, 60, adaptation_factor=0.05) == pytest.approx(1.5)


async def test_the_manager_uses_the_settings():
    config = TimeoutConfig(
        base_operation_timeout=10 * MS, escalation_threshold=1, max_escalation_level=2, enable_adaptive_timeout=False
    )
    with Daybreak("memory://", by="server") as app:
        timeouts, limits = layer.TimeoutManager(config, app), []
        for _ in range(5):
            timeout = await timeouts.create_timeout(TimeoutType.OPERATION, "plan", "ann")
            limits.append(timeout.limit / (10 * MS))
            assert "(written)" in str((await timeout.result()).error)
        assert limits == pytest.approx([1, 1.5, 2.25, 2.25, 2.25])
        retry = timeouts.retry_policy(TimeoutType.LOCK_ACQUISITION, 10)
        assert delay_for(retry, 9, 0.5) == 7.5 * SECOND * 1.5**2


@pytest.mark.parametrize(
    "wrong",
    [{"history_window": timedelta(days=7)}, {"adaptation_factor": 2.0}, {"min_timeout_multiplier": 0.0}],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(BadInput):
        TimeoutConfig(**wrong)


def test_the_history_window_reaches_the_limit():
    assert TimeoutConfig(history_window=timedelta(hours=2)).rules.window == timedelta(hours=2)


# -- reset_timeout -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pause", "state"), [("50s", "open"), ("61s", "closed")])
async def test_failures_that_are_far_apart_do_not_open_the_breaker(pause, state):
    policy = layer.RetryPolicy(max_attempts=1, circuit_breaker=layer.CircuitBreakerConfig(failure_threshold=2))

    def down(attempt):
        raise Transient("down")

    async with inline(Daybreak("memory://", by="server"), clock=HandClock()) as run:
        retries = layer.EnhancedRetryManager(policy, run.app)
        for _ in range(2):
            with pytest.raises(JobFailed):
                await retries.execute_with_retry("backend", down)
            run.clock.advance(pause)
        assert (await run.app.resource("backend").ainfo()).breaker == state


# -- the routes --------------------------------------------------------------------------------------------------------


def server(app, config=None, settings=LOCAL):
    transport = httpx.ASGITransport(asgi(app, settings, routes=[routes_of(config or QueueConfig())]))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def test_the_queue_status_has_the_fields_of_the_go_type(app):
    queue = layer.PriorityQueue(QueueConfig(), app)
    async with server(app) as client:
        empty = (await client.get("/api/queue/status")).json()
        assert empty["LastProcessingTime"] == "0001-01-01T00:00:00Z"
        done = await queue.enqueue(NETWORK, "prod", PULL, "ann", "critical")
        await done.release()
        for _ in range(300):  # the release is settled with the next batch
            if (await app.job(done.request_id).ainfo()).is_final:
                break
            await asyncio.sleep(0.1)
        held = await queue.enqueue(NETWORK, "prod", PULL, "ann")
        waits = await queue.enqueue(NETWORK, "prod", PULL, "bob", "high")
        status = (await client.get("/api/queue/status")).json()
        job = await app.job(done.request_id).ainfo()
    assert status.pop("LastProcessingTime") == job.finished_at.isoformat()
    assert isinstance(status.pop("ProcessingDuration"), int)
    assert status == {
        "TotalEnqueued": 3, "TotalProcessed": 1, "TotalTimeouts": 0, "TotalErrors": 0, "CurrentQueueSize": 1,
        "AverageWaitTime": 0, "PriorityDistribution": {"4": 0, "3": 0, "2": 1, "1": 0, "0": 0}, "BatchesProcessed": 1,
    }  # fmt: skip
    await waits.cancel()
    await held.release()


async def test_the_other_routes_have_the_fields_of_the_go_types(app):
    timeouts = layer.TimeoutManager(TimeoutConfig(base_operation_timeout=10 * MS), app)
    await (await timeouts.create_timeout(TimeoutType.OPERATION, "plan", "ann")).result()
    tries = []

    def flaky(attempt):
        tries.append(attempt)
        if attempt == 1:
            raise Transient("busy")

    await layer.EnhancedRetryManager(QUICK, app).execute_with_retry("lock-acquisition", flaky)
    await (await app.client()).durations.sync()
    async with server(app) as client:
        metrics = (await client.get("/api/timeout/metrics")).json()
        retries = (await client.get("/api/retry/stats")).json()
        rows = (await client.get("/api/adaptive/data")).json()
    assert isinstance(metrics.pop("AverageResolution"), int)
    assert metrics == {
        "TotalTimeouts": 1, "AdaptiveAdjustments": 0, "EscalationEvents": 0, "CurrentActiveTimeouts": 0,
        "TimeoutsByType": {
            "LockAcquisitionTimeout": 0, "QueueWaitTimeout": 0, "RenewalTimeout": 0, "ConnectionTimeout": 0,
            "OperationTimeout": 1, "ExecutionTimeout": 0, "HangTimeout": 0,
        },
    }  # fmt: skip
    assert isinstance(retries.pop("AverageRetryLatency"), int)
    assert retries == {
        "TotalRetries": 1, "SuccessfulRetries": 1, "FailedRetries": 0, "CircuitBreakerTrips": 0,
        "RateLimitedRetries": 0, "AdaptiveAdjustments": 0, "StrategyDistribution": {"JitteredExponential": 1},
        "MaxRetryAttempts": 2,
    }  # fmt: skip
    [row] = [row for row in rows if row["ResourceID"] == "plan"]
    assert row == {
        "TimeoutType": "OperationTimeout", "ResourceID": "plan", "SuccessCount": 0, "TimeoutCount": 1,
        "SuccessRate": 0.0, "BaseTimeout": 10_000_000, "CurrentTimeout": 10_000_000, "AdaptiveAdjustments": 0,
    }  # fmt: skip


PATHS = ["/api/queue/status", "/api/timeout/metrics", "/api/retry/stats", "/api/adaptive/data"]


@pytest.mark.parametrize("path", PATHS)
async def test_the_routes_need_what_daybreak_s_own_reads_need(app, path):
    store = (await app.client()).store
    now = moment(app.world.wall())
    read, work, other = [
        (await create_token(store, name, [role], now=now, queues=queues))[1]
        for name, role, queues in (("ann", "read", None), ("w", "work", None), ("bob", "read", ["mail"]))
    ]
    async with server(app, settings=replace(LOCAL, anonymous_reads=False)) as client:
        problem(await client.get(path), 401, "unauthenticated")
        problem(await client.get(path, headers={"authorization": f"Bearer {work}"}), 403, "forbidden")
        problem(await client.get(path, headers={"authorization": f"Bearer {other}"}), 403, "forbidden")
        problem(await client.get(f"{path}?x=1", headers={"authorization": f"Bearer {read}"}), 422, "invalid")
        assert (await client.get(path, headers={"authorization": f"Bearer {read}"})).status_code == 200


async def test_without_metrics_there_is_no_queue_status(app):
    off = QueueConfig(enable_metrics=False)
    async with server(app, off) as client:
        assert "switched off" in problem(await client.get("/api/queue/status"), 404, "not-found")["detail"]
    with pytest.raises(BadInput, match="switched off"):
        await layer.queue_status(app, off)


async def test_waits_for_locks_are_in_the_metrics_of_the_document(app):
    queue = layer.PriorityQueue(QueueConfig(), app)
    await (await queue.enqueue(NETWORK, "prod", PULL, "ann", "high")).release()
    async with server(app, settings=replace(LOCAL, metric_names=("atlantis",))) as client:
        counted = 'atlantis_queue_wait_time_count{priority="high"} 1.0'
        for _ in range(300):  # the release is settled with the next batch
            text = (await client.get("/metrics")).text
            if counted in text:
                break
            await asyncio.sleep(0.1)
    assert counted in text
    assert 'atlantis_queue_size{queue_type="priority"} 0.0' in text

"""The example of infrastructure locks: its story, run as its README says; and every snippet of the original document,
replayed through the layer that carries its names."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import pytest

from daybreak import (
    Adaptive,
    BadInput,
    Daybreak,
    JobFailed,
    LeaseLost,
    LockShed,
    LockTimeout,
    NotAllowed,
    Permanent,
    Priority,
    Retry,
    State,
    TooLate,
    Transient,
)
from daybreak.core.errors import WrongState
from daybreak.policy.retry import delay_for
from daybreak.store.protocol import Query
from daybreak.testing import HandClock, inline

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "infrastructure_locks"
sys.path.insert(0, str(EXAMPLE))

import enhanced_locking as layer  # noqa: E402 - it stands beside its script, as a reader's own would
from enhanced_locking import Project, PullRequest, QueueConfig, RetryStrategy, TimeoutConfig, TimeoutType  # noqa: E402

TIMEOUT = 120
SECOND, MS = timedelta(seconds=1), timedelta(milliseconds=1)
NETWORK = Project("acme/infra", "network")
PULL = PullRequest(1, "add a subnet", "develop")


# -- the story ---------------------------------------------------------------------------------------------------------


def run(folder, *words):
    own = {name: value for name, value in os.environ.items() if not name.startswith("DAYBREAK_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
    return subprocess.run(
        words, cwd=folder, env={**own, "PATH": path}, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    folder = tmp_path_factory.mktemp("example") / "infrastructure_locks"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("*.db*", "*.json", "__pycache__"))
    ran = run(folder, "python", "-W", "error", "pulls.py")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder, ran.stdout, json.loads((folder / "report.json").read_text(encoding="utf-8"))


def test_the_most_urgent_is_granted_first_and_equals_as_they_came(story):
    _, _, report = story
    assert report["order"] == [101, 106, 108, 103, 102, 105]
    assert {number: one["priority"] for number, one in report["pulls"].items()} == {
        "101": "normal", "102": "normal", "103": "high", "104": "normal", "105": "normal", "106": "emergency",
        "108": "critical", "109": "normal",
    }  # fmt: skip


def test_every_holder_has_a_higher_fence_and_never_two_hold_one_lock(story):
    _, _, report = story
    fences = [report["pulls"][str(number)]["fence"] for number in report["order"]]
    assert fences == [1, 2, 3, 4, 5, 6]
    assert report["two_at_once"] == 0


def test_another_workspace_waits_for_nobody(story):
    _, _, report = story
    assert report["pulls"]["104"] == {
        "user": "dan", "priority": "normal", "waited": 0.0, "fence": 1, "ended": "completed", "why": "",
    }  # fmt: skip


def test_those_who_wait_are_pending_and_see_their_place(story):
    _, told, _ = story
    assert re.search(r"102 bob: pending, [01] before it", told)  # 1 once cid has come
    assert "109 ivy: pending, 2 before it" in told
    line = [words.split()[1:] for words in told.splitlines() if words.startswith("    acme/infra/network/prod")]
    assert [one[:2] for one in line] == [
        ["ann", "normal"], ["eve", "emergency"], ["hal", "critical"], ["cid", "high"], ["bob", "normal"],
        ["fay", "normal"],
    ]  # fmt: skip
    assert [one[2] for one in line] == ["holds", "0", "1", "2", "3", "4"]


def test_emergency_is_for_people_on_call(story):
    _, told, report = story
    assert report["refused"] == [107]
    assert "107 gus: refused: gus is not on call: emergency is for eve" in told


def test_who_gives_up_is_never_granted(story):
    _, told, report = story
    assert report["never_granted"] == [109]
    gone = report["pulls"]["109"]
    assert (gone["fence"], gone["ended"] in ("cancelled", "failed")) == (None, True)
    assert gone["waited"] > 0.9
    assert "109 ivy: gives up waiting" in told


def test_the_lock_of_a_killed_process_goes_to_the_next_within_two_leases(story):
    _, _, report = story
    assert report["pulls"]["106"]["why"].startswith("Lost")
    assert 1.0 < report["free_after_kill"] < 2 * 3 + 4  # a busy machine is slow to look


def test_a_person_takes_a_lock_away_and_its_holder_is_told(story):
    _, told, report = story
    assert "released by" in report["pulls"]["108"]["why"]
    assert "1 lock released; held by hal until now." in told
    assert "108 hal: was told that the lock is not its own any more" in told


def test_in_the_end_nobody_holds_or_waits(story):
    folder, _, _ = story
    ran = run(folder, "daybreak", "locks", "--url", "pulls.db")
    assert ran.stdout.startswith("No lock is held."), ran.stdout + ran.stderr
    counted = json.loads(run(folder, "daybreak", "stats", "lock", "--json", "--url", "pulls.db").stdout)["queue"]
    assert (counted["submitted"], counted["processed"], counted["completed"], counted["errors"]) == (8, 7, 5, 2)


# -- priorities --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "base", "user", "priority"),
    [
        ("HOTFIX dns", "develop", "eve", Priority.EMERGENCY),
        ("SECURITY: rotate keys", "main", "eve", Priority.EMERGENCY),
        ("HOTFIX dns", "develop", "ann", Priority.NORMAL),
        ("HOTFIX dns", "main", "ann", Priority.CRITICAL),
        ("a security group", "develop", "eve", Priority.NORMAL),
        ("x", "main", "ann", Priority.CRITICAL),
        ("x", "production", "ann", Priority.CRITICAL),
        ("x", "release/2.1", "ann", Priority.HIGH),
        ("x", "pre-release/2.1", "ann", Priority.NORMAL),
        ("x", "maintenance", "ann", Priority.NORMAL),
    ],
)
def test_priorities_follow_from_branch_and_from_title_only_with_its_author(title, base, user, priority):
    assert layer.determine_priority(PullRequest(1, title, base), user, {"eve"}) is priority


def test_the_five_levels_stand_in_the_document_s_order():
    names = ["EMERGENCY", "CRITICAL", "HIGH", "NORMAL", "LOW"]
    assert sorted(names, key=lambda name: Priority[name]) == names


# -- the queue ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite"])
def app(request, tmp_path):
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/locks.db"
    with Daybreak(url, by="server") as app:
        yield app


@pytest.fixture
async def queue(app):
    yield layer.PriorityQueue(QueueConfig(max_wait_time=20 * SECOND), app, layer.only_on_call({"eve"}))
    await app.aclose()


async def test_the_queue_s_usage_example(app):
    config = QueueConfig(
        max_queue_size=1000,
        batch_processing_size=10,
        processing_interval=100 * MS,
        max_wait_time=timedelta(minutes=10),
        enable_batching=True,
        enable_metrics=True,
    )
    queue = layer.PriorityQueue(config, app)
    item = await queue.enqueue(NETWORK, "prod", PULL, "ann", Priority.HIGH)
    result = await item.result()
    assert (result.success, result.error, result.fence) == (True, None, 1)
    assert timedelta() <= result.wait_time < 20 * SECOND
    assert (item.pull, item.user, item.lock.names) == (PULL, "ann", ("acme/infra/network/prod",))
    assert (await app.queue("lock").asettings()).capacity == 1000
    await item.release()
    await app.aclose()


async def test_the_line_moves_by_priority_and_then_by_arrival(queue):
    first = await queue.enqueue(NETWORK, "prod", PULL, "ann")
    waiting = {}
    for name, priority in (("low", "low"), ("n1", "normal"), ("n2", "normal"), ("high", "high"), ("crit", "critical")):
        waiting[name] = await queue.enqueue(NETWORK, "prod", PULL, "ann", priority)
    waiting["emergency"] = await queue.enqueue(NETWORK, "prod", PULL, "eve", "emergency")
    places = {name: await item.position() for name, item in waiting.items()}
    assert places == {"emergency": 0, "crit": 1, "high": 2, "n1": 3, "n2": 4, "low": 5}
    granted, held = [], first
    for _ in range(6):
        await held.release()
        [name, held] = await next_of(waiting)
        granted.append((name, (await held.result()).fence))
    await held.release()
    assert granted == list(zip(["emergency", "crit", "high", "n1", "n2", "low"], range(2, 8), strict=True))


async def next_of(waiting):
    """Whoever is granted next."""
    results = {asyncio.create_task(item.result()): name for name, item in waiting.items()}
    async with asyncio.timeout(20):
        [done], others = await asyncio.wait(results, return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    assert done.result().success
    return results[done], waiting.pop(results[done])


async def test_a_workspace_of_its_own_waits_for_nobody(queue):
    items = [await queue.enqueue(NETWORK, workspace, PULL, "ann") for workspace in ("prod", "staging")]
    items.append(await queue.enqueue(Project("acme/infra", "dns"), "prod", PULL, "ann"))
    assert [(await item.result()).fence for item in items] == [1, 1, 1]
    for item in items:
        await item.release()


async def test_a_priority_is_changed_while_it_waits(queue):
    held = await queue.enqueue(NETWORK, "prod", PULL, "ann")
    one, other = [await queue.enqueue(NETWORK, "prod", PULL, "ann") for _ in range(2)]
    await other.reprioritise("high", "ann")
    assert (await one.position(), await other.position()) == (1, 0)
    with pytest.raises(NotAllowed, match="ann is not on call"):
        await one.reprioritise("emergency", "ann")
    await one.reprioritise("emergency", "eve")
    assert (await one.position(), await other.position()) == (0, 1)
    for item in (held, one, other):
        assert (await item.result()).success
        await item.release()


async def test_one_that_is_cancelled_is_never_granted(app, queue):
    held = await queue.enqueue(NETWORK, "prod", PULL, "ann")
    gone, stays = [await queue.enqueue(NETWORK, "prod", PULL, "bob") for _ in range(2)]
    await gone.cancel()
    result = await gone.result()
    assert not result.success
    assert "someone cancelled this wait" in str(result.error)
    await held.release()
    assert (await stays.result()).fence == 2
    await stays.cancel()  # it is held: so it is given back
    assert await app.alocks() == []
    history = await app.job(gone.request_id).ahistory()
    assert "started" not in [event.kind for event in history]


async def test_who_stops_waiting_for_the_result_stays_in_line_until_it_is_cancelled(queue):
    held = await queue.enqueue(NETWORK, "prod", PULL, "ann")
    item = await queue.enqueue(NETWORK, "prod", PULL, "bob")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(item.result(), 0.05)
    assert await item.position() == 0
    await held.release()
    assert (await item.result()).success
    await item.release()
    with pytest.raises(BadInput, match="not held"):
        assert item.lock.fence


async def test_a_wait_that_is_too_long_is_an_answer_and_leaves_nobody_in_line(app):
    queue = layer.PriorityQueue(QueueConfig(max_wait_time=50 * MS), app)
    held = await queue.enqueue(NETWORK, "prod", PULL, "ann")
    late = await (await queue.enqueue(NETWORK, "prod", PULL, "bob")).result()
    assert (late.success, type(late.error), late.fence) == (False, LockTimeout, None)
    assert 30 * MS < late.wait_time < 5 * SECOND  # by the store, which heard of it a little later
    assert [one.state for one in await app.alocks()] == [State.RUNNING]
    await held.release()
    await app.aclose()


async def test_a_full_line_refuses_at_once(app):
    queue = layer.PriorityQueue(QueueConfig(max_queue_size=2), app)
    items = [await queue.enqueue(NETWORK, "prod", PULL, "ann") for _ in range(2)]
    with pytest.raises(LockTimeout, match="too many wait"):
        await queue.enqueue(NETWORK, "prod", PULL, "bob")
    for item in items:
        await item.result()
        await item.release()
    await app.aclose()


async def test_a_full_line_drops_low_priority_requests_first(app):
    queue = layer.PriorityQueue(QueueConfig(max_queue_size=4), app)
    held = await queue.enqueue(NETWORK, "prod", PULL, "ann", "low")
    older, newer = [await queue.enqueue(NETWORK, "prod", PULL, name, "low") for name in ("bob", "cid")]
    normal = await queue.enqueue(NETWORK, "staging", PULL, "dan", "normal")  # another workspace, the same line
    with pytest.raises(LockTimeout, match="too many wait"):
        await queue.enqueue(NETWORK, "prod", PULL, "fay", "low")
    urgent = await queue.enqueue(NETWORK, "prod", PULL, "eve", "emergency")
    async with asyncio.timeout(20):
        dropped = await newer.result()
    assert (dropped.success, type(dropped.error), dropped.fence) == (False, LockShed, None)
    assert f"pushed out by {urgent.request_id}" in str(dropped.error)
    assert (newer.retry_count, await older.position()) == (0, 1)
    for item in (held, normal, urgent, older):
        assert (await item.result()).success
        await item.release()
    assert (await app.astats("lock")).queue.shed == 1
    await app.aclose()


async def test_emergencies_are_for_people_on_call(queue):
    with pytest.raises(NotAllowed, match="ann is not on call: emergency is for eve"):
        await queue.enqueue(NETWORK, "prod", PULL, "ann", Priority.EMERGENCY)
    item = await queue.enqueue(NETWORK, "prod", PULL, "eve", Priority.EMERGENCY)
    await item.result()
    await item.release()


async def test_a_lock_that_was_taken_away_is_told_on_release(app, queue):
    item = await queue.enqueue(NETWORK, "prod", PULL, "ann")
    await item.result()
    await app.job(item.request_id).acancel()
    with pytest.raises(LeaseLost):
        await item.release()


def test_the_document_s_defaults():
    assert asdict(QueueConfig()) == {
        "max_queue_size": 1000, "batch_processing_size": 10, "processing_interval": 100 * MS,
        "max_wait_time": timedelta(minutes=10), "max_retries": 3, "priority_weights": None, "enable_batching": True,
        "enable_metrics": True,
    }  # fmt: skip
    assert asdict(TimeoutConfig()) == {
        "base_lock_timeout": 30 * SECOND, "base_queue_timeout": 300 * SECOND, "base_renewal_timeout": 10 * SECOND,
        "base_connection_timeout": 5 * SECOND, "base_operation_timeout": 60 * SECOND,
        "enable_adaptive_timeout": True, "min_timeout_multiplier": 0.5, "max_timeout_multiplier": 3.0,
        "adaptation_factor": 0.1, "history_window": timedelta(hours=24), "enable_escalation": True,
        "escalation_threshold": 3, "escalation_multiplier": 1.5, "max_escalation_level": 5,
    }  # fmt: skip
    assert asdict(layer.CircuitBreakerConfig()) == {
        "failure_threshold": 5, "success_threshold": 3, "timeout": 30 * SECOND, "reset_timeout": 60 * SECOND,
    }  # fmt: skip
    assert asdict(layer.RateLimiterConfig()) == {"max_tokens": 10, "refill_rate": 1.0}


# -- time limits -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def timeouts():
    app = Daybreak("memory://", by="server")
    yield layer.TimeoutManager(TimeoutConfig(base_operation_timeout=20 * MS), app)
    app.close()


async def test_the_timeout_s_usage_example():
    config = TimeoutConfig(
        enable_adaptive_timeout=True,
        enable_escalation=True,
        base_lock_timeout=30 * SECOND,
        max_timeout_multiplier=3.0,
    )
    with Daybreak("memory://") as app:
        timeouts = layer.TimeoutManager(config, app)
        timeout = await timeouts.create_timeout(TimeoutType.LOCK_ACQUISITION, "acme/network", "ann")
        assert (timeout.limit, timeout.user) == (30 * SECOND, "ann")
        assert list(timeouts.active) == [timeout.id]
        timeout.complete()
        result = await timeout.result()
        assert (result.success, result.error) == (True, None)
        assert timedelta() <= result.duration < 20 * SECOND
        assert timeouts.active == {}


async def test_a_time_that_is_up_is_an_answer(timeouts):
    timeout = await timeouts.create_timeout(TimeoutType.OPERATION, "plan", "ann")
    result = await timeout.result()
    assert (result.success, type(result.error), result.duration) == (False, TooLate, 20 * MS)
    assert timeouts.active == {}


async def test_a_cancelled_timeout_says_nothing(timeouts):
    timeout = await timeouts.create_timeout(TimeoutType.QUEUE_WAIT, "plan", "ann")
    await timeouts.cancel_timeout(timeout.id)
    await timeouts.cancel_timeout(timeout.id)
    assert timeouts.active == {}
    with pytest.raises(asyncio.CancelledError):
        await timeout.result()


async def test_each_kind_has_the_document_s_base(timeouts):
    bases = {
        TimeoutType.LOCK_ACQUISITION: 30.0, TimeoutType.QUEUE_WAIT: 300.0, TimeoutType.RENEWAL: 10.0,
        TimeoutType.CONNECTION: 5.0, TimeoutType.OPERATION: 0.02,
    }  # fmt: skip
    for kind, seconds in bases.items():
        timeout = await timeouts.create_timeout(kind, "plan", "ann")
        assert timeout.limit.total_seconds() == seconds
        await timeouts.cancel_timeout(timeout.id)


async def test_limits_escalate_after_three_in_a_row_were_too_short_at_most_five_times_over(timeouts):
    limits = []
    for _ in range(9):
        timeout = await timeouts.create_timeout(TimeoutType.OPERATION, "slow", "ann")
        assert not (await timeout.result()).success
        limits.append(timeout.limit / (20 * MS))
    assert limits == pytest.approx([1, 1, 1, 1.5, 1.5**2, 1.5**3, 1.5**4, 1.5**5, 1.5**5], rel=1e-3)


async def test_without_escalation_the_limit_stays(timeouts):
    plain = layer.TimeoutManager(TimeoutConfig(base_operation_timeout=5 * MS, enable_escalation=False), timeouts.app)
    for _ in range(6):
        timeout = await plain.create_timeout(TimeoutType.OPERATION, "slow", "ann")
        await timeout.result()
        assert timeout.limit == 5 * MS


def test_waits_between_tries_escalate_as_in_the_document():
    retry = layer.TimeoutManager(TimeoutConfig(), Daybreak("memory://")).retry_policy(TimeoutType.LOCK_ACQUISITION, 10)
    waits = [delay_for(retry, tried + 1, 0.5).total_seconds() for tried in range(8)]
    assert waits == pytest.approx([7.5 * 1.5 ** min(tried, 5) for tried in range(8)])


BASE = 60 * SECOND


def limit_after(seconds, times=200, late=0):
    """The limit, as a multiple of the base, after so many took so long, and some ran into three times the base."""
    took = [timedelta(seconds=seconds)] * (times - late) + [3 * BASE] * late
    return layer.calculate_adaptive_timeout(BASE, took) / BASE


def test_without_data_the_base_holds():
    assert limit_after(1.0, times=0) == 1.0
    assert limit_after(1.0, times=20) == 1.0


def test_a_limit_is_twice_what_all_but_one_in_a_hundred_took_between_a_half_and_three():
    assert limit_after(0.001) == 0.5
    assert limit_after(3600.0) == 3.0
    assert limit_after(45.0) == pytest.approx(2 * 45 / 60, rel=0.1)
    assert limit_after(3.0, late=1) == 0.5  # one in two hundred is no reason
    assert limit_after(3.0, late=10) == 3.0


def test_a_limit_never_falls_when_things_take_longer_and_never_jumps():
    limits = [limit_after(0.5 * 1.02**n) for n in range(400)]
    assert all(0.5 <= limit <= 3.0 for limit in limits)
    assert all(one <= other for one, other in itertools.pairwise(limits))
    assert (limits[0], limits[-1]) == (0.5, 3.0)
    assert max(other / one for one, other in itertools.pairwise(limits)) < 1.11  # a class of durations is a tenth wide


def test_a_limit_moves_little_by_little_as_more_is_seen():
    for seconds, last in ((0.01, 0.5), (600.0, 3.0)):
        limits = [limit_after(seconds, times) for times in range(121)]
        assert (limits[0], limits[20], limits[-1]) == (1.0, 1.0, last)
        steps = [abs(other - one) for one, other in itertools.pairwise(limits)]
        assert max(steps) <= abs(last - 1) / 80 + 1e-5


def test_the_better_it_goes_the_shorter_and_never_longer():
    """In the document the limit fell by half between 90.0 and 90.1 % of successes, and rose again up to 100 %."""
    limits = [limit_after(6.0, times=1000, late=late) for late in (1000, 500, 200, 101, 100, 99, 50, 11, 9, 1, 0)]
    assert limits == sorted(limits, reverse=True)
    assert (limits[0], limits[-1]) == (3.0, 0.5)


async def test_what_one_process_sees_the_next_one_knows(tmp_path):
    url = f"sqlite:///{tmp_path}/locks.db"
    async with Daybreak(url) as app:
        timeouts = layer.TimeoutManager(TimeoutConfig(), app)
        for _ in range(110):
            (timeout := await timeouts.create_timeout(TimeoutType.CONNECTION, "state", "ann")).complete()
            assert timeout.limit == 5 * SECOND
            await timeout.result()
    async with Daybreak(url) as app:
        timeout = await layer.TimeoutManager(TimeoutConfig(), app).create_timeout(TimeoutType.CONNECTION, "state", "b")
        assert timeout.limit == 2.5 * SECOND
        await timeout.cancel()


# -- retries -----------------------------------------------------------------------------------------------------------


def waits(policy, chance, attempts=6, **how):
    return [delay_for(policy.retry, n, chance, **how).total_seconds() for n in range(1, attempts + 1)]


def test_the_default_policy():
    policy = layer.default_retry_policy()
    assert policy.retry == Retry(
        strategy="jittered", attempts=3, delay=SECOND, cap=30 * SECOND, factor=2.0, jitter=0.1
    )  # fmt: skip
    assert waits(policy, 0.5) == [1, 2, 4, 8, 16, 30]
    assert waits(policy, 0.0) == pytest.approx([0.9, 1.8, 3.6, 7.2, 14.4, 27])
    assert waits(policy, 1.0) == pytest.approx([1.1, 2.2, 4.4, 8.8, 17.6, 33])


def test_the_aggressive_policy_waits_longer_the_less_succeeds():
    policy = layer.aggressive_retry_policy()
    assert policy.retry == Retry(
        strategy="adaptive", attempts=5, delay=500 * MS, cap=60 * SECOND, factor=1.5, jitter=0.2
    )  # fmt: skip
    assert waits(policy, 0.5, 3) == pytest.approx([0.5, 0.75, 1.125])
    by_success = [waits(policy, 0.5, 1, success=n / 1000)[0] for n in range(1001)]
    assert (by_success[0], by_success[-1]) == (2.0, 0.25)
    assert by_success == sorted(by_success, reverse=True)
    assert max(one / other for one, other in itertools.pairwise(by_success)) < 1.01


def test_jitter_is_spread_evenly_to_both_sides(tmp_path):
    """In the document it lay between the whole of it and nothing, on one side."""
    policy = layer.default_retry_policy()
    spread = [waits(policy, n / 1000, 1)[0] for n in range(1001)]
    assert (min(spread), max(spread)) == pytest.approx((0.9, 1.1))
    assert statistics.mean(spread) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (RetryStrategy.FIXED_DELAY, [1, 1, 1, 1, 1, 1]),
        (RetryStrategy.LINEAR_BACKOFF, [1, 2, 3, 4, 5, 6]),
        (RetryStrategy.EXPONENTIAL_BACKOFF, [1, 2, 4, 8, 16, 30]),
        (RetryStrategy.JITTERED_EXPONENTIAL, [1, 2, 4, 8, 16, 30]),
        (RetryStrategy.ADAPTIVE_BACKOFF, [1, 2, 4, 8, 16, 30]),
    ],
)
def test_the_five_strategies(strategy, expected):
    assert waits(layer.RetryPolicy(strategy=strategy), 0.5) == pytest.approx(expected)


@pytest.fixture
async def hour():
    """An app on a clock that is moved by hand; what is submitted has run when that returns."""
    async with inline(Daybreak("memory://", by="server"), clock=HandClock()) as run:
        yield run


def manager(run, policy=None):
    return layer.EnhancedRetryManager(policy or layer.default_retry_policy(), run.app)


def failing(times):
    """An operation that fails so many times, and keeps the numbers of its attempts."""
    seen = []

    def operation(attempt):
        seen.append(attempt)
        if len(seen) <= times:
            raise Transient("the state is locked")
        return "locked"

    return operation, seen


async def test_the_retry_s_usage_example(hour):
    policy = layer.RetryPolicy(
        max_attempts=3,
        strategy=RetryStrategy.ADAPTIVE_BACKOFF,
        base_delay=SECOND,
        max_delay=30 * SECOND,
        backoff_multiplier=2.0,
        jitter_percent=0.1,
    )
    retries = manager(hour, policy)
    began, (try_lock, attempts) = hour.clock.now, failing(2)
    assert await retries.execute_with_retry("lock-acquisition", try_lock) == "locked"
    assert attempts == [1, 2, 3]
    assert 3 * 0.9 * 0.5 <= (hour.clock.now - began).total_seconds() <= 3 * 1.1 * 4  # how far success may stretch it


async def test_attempts_are_used_up_and_then_the_error_is_told(hour):
    began, (try_lock, attempts) = hour.clock.now, failing(9)
    with pytest.raises(JobFailed, match="Transient: the state is locked") as failed:
        await manager(hour).execute_with_retry("lock-acquisition", try_lock)
    assert (attempts, failed.value.reason) == ([1, 2, 3], "exhausted")
    assert 2.7 <= (hour.clock.now - began).total_seconds() <= 3.3


async def test_an_error_that_no_retry_can_help_is_told_at_once(hour):
    tried = []

    def refused(attempt, who):
        tried.append((attempt, who))
        raise Permanent("no such workspace")

    with pytest.raises(JobFailed, match="no such workspace"):
        await manager(hour).execute_with_retry("lock-acquisition", refused, "ann")
    assert tried == [(1, "ann")]


async def test_a_name_stands_for_one_operation(hour):
    retries = manager(hour)
    await retries.execute_with_retry("plan", failing(0)[0])
    with pytest.raises(BadInput, match="'plan' is the name of another operation"):
        await retries.execute_with_retry("plan", failing(0)[0])


async def test_retries_run_in_this_process_without_a_worker(app):
    quick = layer.RetryPolicy(strategy=RetryStrategy.FIXED_DELAY, base_delay=MS)
    operation, attempts = failing(1)
    retries = layer.EnhancedRetryManager(quick, app)
    assert await retries.execute_with_retry("lock-acquisition", operation) == "locked"
    assert attempts == [1, 2]
    await app.aclose()


# -- breakers and rates ------------------------------------------------------------------------------------------------


class Backend:
    """A server behind a breaker: one try each time it is asked."""

    def __init__(self, run):
        once = layer.RetryPolicy(max_attempts=1, circuit_breaker=layer.CircuitBreakerConfig())
        self.run, self.asked, self.is_up = run, 0, False
        self._retries = manager(run, once)

    def _operation(self, attempt):
        self.asked += 1
        if not self.is_up:
            raise Transient("down")

    async def ask(self):
        try:
            await self._retries.execute_with_retry("backend", self._operation)
        except JobFailed as failed:
            return "fails fast" if "breaker" in failed.error else "fails"
        return "works"

    async def state(self):
        return (await self.run.app.resource("backend").ainfo()).breaker


async def test_a_breaker_opens_probes_and_closes(hour):
    backend = Backend(hour)
    assert [await backend.ask() for _ in range(5)] == ["fails"] * 5
    assert await backend.state() == "open"
    assert [await backend.ask() for _ in range(3)] == ["fails fast"] * 3
    assert backend.asked == 5
    hour.clock.advance("29s")
    assert await backend.ask() == "fails fast"
    hour.clock.advance("1s")
    backend.is_up = True
    assert [await backend.ask(), await backend.state()] == ["works", "open"]
    assert [await backend.ask(), await backend.state()] == ["works", "open"]
    assert [await backend.ask(), await backend.state()] == ["works", "closed"]
    assert backend.asked == 8


async def test_a_probe_that_fails_opens_the_breaker_anew(hour):
    backend = Backend(hour)
    for _ in range(5):
        await backend.ask()
    hour.clock.advance("30s")
    assert await backend.ask() == "fails"  # half-open: this one was let through
    assert await backend.ask() == "fails fast"
    hour.clock.advance("29s")
    assert await backend.ask() == "fails fast"
    hour.clock.advance("1s")
    backend.is_up = True
    assert [await backend.ask() for _ in range(3)] == ["works"] * 3
    assert await backend.state() == "closed"
    assert (await layer.retry_stats(hour.app))["circuit_breaker_trips"] == 2


async def test_the_rate_limiter_s_usage_example(hour):
    limiter = layer.RateLimiter(layer.RateLimiterConfig(max_tokens=10, refill_rate=1.0), hour.app, "plans")
    assert [await limiter.allow() for _ in range(12)] == [True] * 10 + [False] * 2
    hour.clock.advance("1s")
    assert [await limiter.allow() for _ in range(2)] == [True, False]
    hour.clock.advance("1h")
    assert [await limiter.allow() for _ in range(11)] == [True] * 10 + [False]


async def test_the_default_policy_keeps_the_document_s_pace(hour):
    retries = manager(hour)
    settings = retries.policy.resource("x").settings
    assert (settings.every, settings.burst) == (SECOND, 10)
    assert settings.breaker == layer.CircuitBreakerConfig().breaker


# -- status pages ------------------------------------------------------------------------------------------------------


async def test_every_field_of_the_queue_status(app):
    """Five ask for one lock: one holds it, gives it back, the next is taken away, one leaves, two wait."""
    queue = layer.PriorityQueue(QueueConfig(), app, layer.only_on_call({"eve"}))
    held = await queue.enqueue(NETWORK, "prod", PULL, "ann")
    asked = ("eve", "emergency"), ("bob", "high"), ("cid", "normal"), ("dan", 6)
    urgent, gone, *_ = items = [await queue.enqueue(NETWORK, "prod", PULL, user, how) for user, how in asked]
    assert (await layer.queue_status(app))["priority_distribution"] == {
        "emergency": 1, "critical": 0, "high": 1, "normal": 2, "low": 0,
    }  # fmt: skip
    await gone.cancel()
    await held.release()
    await urgent.result()
    before = (await urgent.result()).wait_time
    release(app, urgent)
    await items[2].result()
    status = await layer.queue_status(app)
    last = status.pop("last_processing_time")
    average = status.pop("average_wait_time")
    assert status == {
        "total_enqueued": 5, "total_processed": 2, "total_timeouts": 0, "total_errors": 1, "current_queue_size": 1,
        "priority_distribution": {"emergency": 0, "critical": 0, "high": 0, "normal": 1, "low": 0},
        "batches_processed": 2, "processing_duration": 0.0,
    }  # fmt: skip
    assert average == pytest.approx(before.total_seconds() / 2, abs=1e-5)  # the first did not wait
    assert last == (await app.job(urgent.request_id).ainfo()).finished_at.isoformat()
    json.dumps([status, last, average])
    await items[2].release()
    await items[3].result()
    await items[3].release()
    await app.aclose()


def release(app, item):
    """As `daybreak locks release --force` does."""
    from daybreak.api.locks import owned_locks

    async def take_away():
        return await owned_locks.release(await app.client(), item.lock.names, None)

    assert [job.id for job in app.portal.run(take_away())] == [item.request_id]


async def test_every_field_of_the_retry_stats(hour):
    """One succeeds at the third try, one fails thrice, one is fine at once; an adaptive one succeeds at the second."""
    retries = manager(hour, layer.RetryPolicy(circuit_breaker=layer.CircuitBreakerConfig(failure_threshold=4)))
    await retries.execute_with_retry("a", failing(2)[0])
    with pytest.raises(JobFailed):
        await retries.execute_with_retry("b", failing(3)[0])
    await retries.execute_with_retry("c", failing(0)[0])
    aggressive = manager(hour, layer.aggressive_retry_policy())
    await aggressive.execute_with_retry("d", failing(1)[0])
    stats = await layer.retry_stats(hour.app)
    latency = stats.pop("average_retry_latency")
    assert stats == {
        "total_retries": 5, "successful_retries": 2, "failed_retries": 3, "circuit_breaker_trips": 0,
        "rate_limited_retries": 0, "adaptive_adjustments": 1,
        "strategy_distribution": {"adaptive": 1, "jittered": 4}, "max_retry_attempts": 3,
    }  # fmt: skip
    assert 0 <= latency < 1
    json.dumps(stats)


async def test_retries_that_spare_a_failing_resource_are_counted_as_rate_limited(hour):
    policy = layer.RetryPolicy(max_attempts=99, strategy=RetryStrategy.FIXED_DELAY, base_delay=100 * MS)
    with pytest.raises(WrongState, match="blocked"):  # it is not over: time must pass
        await manager(hour, policy).execute_with_retry("plan", failing(60)[0])
    await hour.aadvance("1h")
    [job] = (await hour.store.find(Query())).jobs
    assert job.state is State.COMPLETED
    notes = [event.note for event in await hour.app.job(job.id).ahistory() if event.kind == "blocked"]
    assert notes
    assert set(notes) == {"retries of plan"}
    stats = await layer.retry_stats(hour.app)
    assert (stats["rate_limited_retries"], stats["total_retries"], stats["max_retry_attempts"]) == (len(notes), 60, 61)


async def test_a_wait_for_a_lock_that_ran_out_is_counted_as_a_timeout(app):
    queue = layer.PriorityQueue(QueueConfig(max_wait_time=50 * MS), app)
    held = await queue.enqueue(NETWORK, "prod", PULL, "ann")
    await (await queue.enqueue(NETWORK, "prod", PULL, "bob")).result()
    await held.release()
    status = await layer.queue_status(app)
    await app.aclose()
    assert status["total_timeouts"] == 1


async def test_every_field_of_the_timeout_metrics_and_of_the_adaptive_data(tmp_path):
    url = f"sqlite:///{tmp_path}/locks.db"
    async with Daybreak(url) as app:
        timeouts = layer.TimeoutManager(TimeoutConfig(base_operation_timeout=10 * MS), app)
        for _ in range(2):
            await (await timeouts.create_timeout(TimeoutType.OPERATION, "plan", "ann")).result()
        took = []
        for _ in range(110):
            (timeout := await timeouts.create_timeout(TimeoutType.CONNECTION, "state", "ann")).complete()
            took.append((await timeout.result()).duration.total_seconds())
        running = await timeouts.create_timeout(TimeoutType.CONNECTION, "state", "ann")
        assert (await layer.timeout_metrics(app, timeouts))["current_active_timeouts"] == 1
        await running.cancel()
    async with Daybreak(url) as app:
        metrics = await layer.timeout_metrics(app, layer.TimeoutManager(TimeoutConfig(), app))
        average = metrics.pop("average_resolution")
        assert metrics == {
            "total_timeouts": 2,
            "timeouts_by_type": {
                "execution": 0, "hang": 0, "wait": 0, "acquisition": 0, "renewal": 0, "connection": 0, "operation": 2,
            },
            "adaptive_adjustments": 1, "escalation_events": 0, "current_active_timeouts": 0,
        }  # fmt: skip
        assert average == pytest.approx((sum(took) + 2 * 0.01) / 112, abs=2e-3)
        [connection, operation] = await layer.adaptive_data(app)
        assert 0 < connection.pop("median") <= connection.pop("p99") < 1
        assert connection == {
            "subject": "connection state", "seen": 110, "timeouts": 0, "base_timeout": 5.0, "current_timeout": 2.5,
            "adjustments": 1,
        }  # fmt: skip
        assert (operation["subject"], operation["seen"], operation["timeouts"]) == ("operation plan", 2, 2)
        json.dumps([metrics, connection, operation])


async def test_execution_limits_of_operations_are_counted_with_their_escalations(tmp_path):
    with Daybreak("memory://") as app:

        @app.task(timeout=Adaptive("30ms"), retry=Retry(strategy="fixed", attempts=3, delay=MS))
        async def apply() -> None:
            await asyncio.sleep(60)

        job = await apply.asubmit()
        await app.awork(until=job, isolation="thread")
        metrics = await layer.timeout_metrics(app)
        assert (metrics["total_timeouts"], metrics["timeouts_by_type"]["execution"]) == (3, 3)
        assert metrics["escalation_events"] == 2

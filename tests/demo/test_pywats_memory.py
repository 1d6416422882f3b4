"""pywats_queue: items and the queue in memory, with the names of the pyWATS document."""

from __future__ import annotations

import ast
import asyncio
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest
from pywats_queue import (
    AsyncQueueAdapter,
    BaseQueue,
    DuplicateItemError,
    ItemNotFoundError,
    ItemTakenError,
    MemoryQueue,
    QueueError,
    QueueFullError,
    QueueHooks,
    QueueItem,
    QueueItemStatus,
    QueueStats,
)
from pywats_queue.queue import memory, waiters

EXAMPLE = Path(__file__).parents[2] / "examples" / "report_upload"
PENDING, PROCESSING, COMPLETED, FAILED, SUSPENDED = QueueItemStatus


@pytest.fixture
def queue():
    return MemoryQueue()


def process(queue, item):
    item.mark_processing()
    queue.update(item)
    return item


def taken(queue):
    ids = []
    while (item := queue.get_next()) is not None:
        ids.append(item.id)
    return ids


# -- items -------------------------------------------------------------------------------------------------------------


def test_an_item_has_the_fields_and_defaults_of_the_document():
    item = QueueItem.create({"sn": "1"})
    assert (item.priority, item.status, item.attempts, item.max_attempts) == (5, PENDING, 0, 3)
    assert (item.last_error, item.metadata) == (None, {})
    assert item.is_pending
    assert item.can_retry
    assert abs(datetime.now(UTC) - item.created_at) < timedelta(minutes=1)
    assert [status.value for status in QueueItemStatus] == [
        "pending", "processing", "completed", "failed", "suspended",
    ]  # fmt: skip


def test_marks_change_status_attempts_error_and_time():
    item = QueueItem("x", {})
    before = item.updated_at
    item.mark_processing()
    assert (item.is_processing, item.attempts) == (True, 1)
    assert item.updated_at >= before
    item.mark_failed("no network")
    assert (item.is_failed, item.last_error, item.can_retry) == (True, "no network", True)
    item.mark_suspended("operator")
    assert (item.is_suspended, item.last_error) == (True, "operator")
    item.reset_to_pending()
    assert (item.is_pending, item.attempts) == (True, 1)
    item.mark_completed()
    assert item.is_completed


def test_max_attempts_of_zero_leaves_no_retry():
    assert not QueueItem("x", {}, max_attempts=0).can_retry


def test_an_item_is_plain_data_and_back():
    item = QueueItem.create({"sn": "1"}, item_id="a", priority=2, max_attempts=7, metadata={"line": {"no": [1, 2]}})
    item.mark_processing().mark_failed("x")
    told = json.loads(json.dumps(item.to_dict()))
    assert told["status"] == "failed"
    assert QueueItem.from_dict(told) == item


def test_old_items_without_priority_have_five():
    told = QueueItem("x", {}).to_dict()
    del told["priority"]
    assert QueueItem.from_dict(told).priority == 5
    assert QueueItem.from_dict({"id": "x", "data": 1}).status is PENDING


def test_items_order_by_priority_and_age():
    noon = datetime(2026, 1, 1, tzinfo=UTC)
    old, new, urgent = QueueItem("o", 0, 5, created_at=noon), QueueItem("n", 0, 5), QueueItem("u", 0, 1)
    assert sorted([new, old, urgent]) == [urgent, old, new]


@pytest.mark.parametrize("priority", [0, 11, -99, 1000, "high", 2.5, True])
def test_a_priority_that_is_none_is_refused(queue, priority):
    with pytest.raises(ValueError, match="priority"):
        queue.add({}, priority=priority)
    assert queue.is_empty


# -- order -------------------------------------------------------------------------------------------------------------


def test_the_interface_cannot_be_made_and_the_queue_implements_it(queue):
    with pytest.raises(TypeError):
        BaseQueue()
    assert isinstance(queue, BaseQueue)


def test_priority_ordering_basic(queue):
    for priority in (5, 1, 10, 3):
        queue.add({"p": priority}, priority=priority)
    assert [queue.get_next().priority for _ in range(4)] == [1, 3, 5, 10]
    assert queue.get_next() is None


def test_fifo_within_same_priority(queue):
    added = [queue.add({"n": n}).id for n in range(50)]
    assert taken(queue) == added


def test_mixed_priorities_with_fifo(queue):
    added = [queue.add({"n": n}, priority=1 + n % 3) for n in range(30)]
    assert taken(queue) == [item.id for item in sorted(added, key=lambda item: item.priority)]


def test_removed_items_are_not_taken(queue):
    first, second = queue.add({}, priority=1), queue.add({}, priority=5)
    assert queue.remove(first.id)
    assert not queue.remove(first.id)
    assert queue.get_next().id == second.id
    assert queue.get(first.id) is None


def test_items_whose_status_changed_are_not_taken(queue):
    first, second, third = (queue.add({}, priority=p) for p in (1, 2, 3))
    first.mark_completed()
    queue.update(first)
    second.mark_suspended("hold")
    queue.update(second)
    assert queue.get_next().id == third.id
    assert queue.get(first.id).is_completed


def test_a_retried_item_is_taken_again(queue):
    item = process(queue, queue.add({}, item_id="a") and queue.get_next())
    item.mark_failed("once")
    queue.update(item)
    item.reset_to_pending()
    queue.update(item)
    again = queue.get_next()
    assert (again.id, again.attempts, again.last_error) == ("a", 1, "once")


def test_a_changed_priority_changes_the_order(queue):
    low, high = queue.add({}, priority=5), queue.add({}, priority=4)
    low.priority = 1
    queue.update(low)
    assert taken(queue) == [low.id, high.id]


def test_lists_and_iteration_are_in_priority_order(queue):
    for priority in (7, 1, 5, 1):
        queue.add({}, priority=priority)
    assert [item.priority for item in queue.list_by_status(PENDING)] == [1, 1, 5, 7]
    assert [item.priority for item in queue] == [1, 1, 5, 7]
    assert len(queue) == len(queue._items) == len(queue._heap) == 4


def test_clear_clears_everything(queue):
    for n in range(5):
        queue.add({}, item_id=str(n))
    process(queue, queue.get_next())
    queue.get_next()
    assert queue.clear() == 5
    assert (queue.size, queue.is_empty, queue.get_next(), queue._heap, queue._items) == (0, True, None, [], {})
    queue.add({}, item_id="0")  # its id is free again


def test_clear_by_status_leaves_the_others(queue):
    items = [queue.add({}, item_id=str(n)) for n in range(4)]
    items[0].mark_completed()
    items[1].mark_failed("x")
    for item in items[:2]:
        queue.update(item)
    assert queue.clear(FAILED) == 1
    assert queue.clear_completed() == 1
    assert queue.clear_failed() == 0
    assert [item.id for item in queue] == ["2", "3"]


def test_many_items(queue):
    priorities = [1 + n * 7 % 10 for n in range(2000)]
    for n, priority in enumerate(priorities):
        queue.add({"n": n}, priority=priority)
    assert [queue.get_next().priority for _ in range(2000)] == sorted(priorities)


# -- the life of an item -----------------------------------------------------------------------------------------------


def test_get_next_gives_a_pending_item_to_one_caller(queue):
    queue.add({}, item_id="a")
    item = queue.get_next()
    assert (item.is_pending, item.attempts, queue.get_next()) == (True, 0, None)
    assert (queue.stats.pending, queue.stats.processing) == (1, 0)
    process(queue, item)
    assert (item.attempts, queue.stats.pending, queue.stats.processing) == (1, 0, 1)
    assert [one.id for one in queue.list_processing()] == ["a"]


def test_an_item_that_nobody_marked_is_not_given_twice_by_an_update(queue):
    queue.add({}, item_id="a")
    item = queue.get_next()
    queue.update(item)
    assert queue.get_next() is None
    item.reset_to_pending()
    queue.update(item)
    assert queue.get_next().attempts == 0


def test_an_item_that_nobody_marks_for_half_an_hour_goes_back(queue, monkeypatch):
    queue.add({}, item_id="a")
    forgotten = queue.get_next()
    monkeypatch.setattr(memory, "MARK_WITHIN", timedelta(0))
    assert queue.get_next().id == "a"
    assert forgotten is queue.get("a")


def test_a_failure_is_retried_until_attempts_are_used_up(queue):
    queue.add({}, item_id="a", max_attempts=3)
    seen = []
    while (item := queue.get_next()) is not None:
        process(queue, item)
        item.mark_failed(f"error {item.attempts}")
        queue.update(item)
        seen.append((item.status, item.attempts))
    assert seen == [(PENDING, 1), (PENDING, 2), (FAILED, 3)]
    assert queue.get("a").last_error == "error 3"
    assert [one.id for one in queue.list_failed()] == ["a"]


@pytest.mark.parametrize("attempts", [0, 1])
def test_one_attempt_and_none_fail_at_once(queue, attempts):
    queue.add({}, item_id="a", max_attempts=attempts)
    item = process(queue, queue.get_next())
    assert item.max_attempts == attempts
    item.mark_failed("x")
    queue.update(item)
    assert item.is_failed


def test_max_attempts_set_to_zero_makes_a_failure_final(queue):
    queue.add({}, item_id="a", max_attempts=5)
    item = process(queue, queue.get_next())
    item.max_attempts = 0
    item.mark_failed("Validation error: no part number")
    queue.update(item)
    assert queue.get("a").is_failed


def test_max_attempts_may_be_raised_later(queue):
    queue.add({}, item_id="a", max_attempts=1)
    item = queue.get_next()
    item.max_attempts = 2
    process(queue, item)
    queue.update(item.mark_failed("once"))
    assert (item.status, item.attempts, item.max_attempts) == (PENDING, 1, 2)
    process(queue, queue.get_next())
    queue.update(item.mark_failed("twice"))
    assert (item.status, item.attempts) == (FAILED, 2)


def test_retry_failed_brings_failed_items_back_to_the_queue(queue):
    queue.add({}, item_id="used up", max_attempts=1)
    queue.add({}, item_id="by hand")
    item = process(queue, queue.get_next())
    item.mark_failed("x")
    queue.update(item)
    other = queue.get("by hand").mark_failed("y")
    queue.update(other)
    assert (queue.count_failed(), queue.get_next()) == (2, None)
    assert queue.retry_failed() == 2
    assert [(one.id, one.attempts) for one in queue] == [("used up", 0), ("by hand", 0)]
    assert taken(queue) == ["used up", "by hand"]


def test_suspended_until_it_is_reset(queue):
    queue.add({}, item_id="a")
    item = process(queue, queue.get_next())
    item.mark_suspended("wait for the operator")
    queue.update(item)
    assert (queue.stats.suspended, queue.stats.active, queue.get_next()) == (1, 1, None)
    assert queue.get("a").last_error == "wait for the operator"
    item.reset_to_pending()
    queue.update(item)
    assert (queue.get_next().id, item.attempts) == ("a", 1)


def test_get_next_any_takes_suspended_items_by_priority_too(queue):
    held, waiting = queue.add({}, priority=2), queue.add({}, priority=5)
    held.mark_suspended()
    queue.update(held)
    assert queue.get_next_any(include_suspended=False).id == waiting.id
    assert queue.get_next_any().id == held.id
    assert queue.get_next_any() is None


def test_a_stuck_item_can_be_reset_by_anyone(queue):
    queue.add({}, item_id="stuck-item-id")
    holder = process(queue, queue.get_next())
    copy = queue.list_processing()[0]
    copy.reset_to_pending()
    queue.update(copy)
    assert (holder.is_pending, holder.attempts) == (True, 1)
    assert queue.get_next().id == "stuck-item-id"


def test_an_item_can_be_removed_while_it_is_processed(queue):
    item = queue.add({}, item_id="a")
    process(queue, queue.get_next())
    assert queue.remove("a")
    assert (queue.get("a"), queue.size) == (None, 0)
    item.mark_completed()
    with pytest.raises(ItemNotFoundError, match="no item 'a'"):
        queue.update(item)
    assert queue.size == 0


def test_the_same_id_twice_is_refused_and_nothing_is_overwritten(queue):
    queue.add({"n": 1}, item_id="a")
    with pytest.raises(DuplicateItemError, match="'a'"):
        queue.add({"n": 2}, item_id="a")
    assert queue.get("a").data == {"n": 1}
    assert taken(queue) == ["a"]


def test_completed_twice_is_completed_and_a_completed_item_cannot_start(queue):
    item = queue.add({})
    for _ in range(2):
        item.mark_completed()
        queue.update(item)
    item.mark_processing()
    with pytest.raises(QueueError, match="completed"):
        queue.update(item)
    item.reset_to_pending()
    queue.update(item)
    assert queue.get_next().id == item.id


def test_data_is_the_callers_own_object_and_metadata_may_change(queue):
    data, metadata = object(), {"line": 1}
    item = queue.add(data, metadata=metadata)
    assert queue.get(item.id).data is data
    item.metadata["tester"] = {"nested": [1]}
    queue.update(item)
    assert [one.metadata for one in queue] == [{"line": 1, "tester": {"nested": [1]}}]
    assert metadata == {"line": 1}


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_the_size_limit_counts_unfinished_items(queue):
    small = MemoryQueue(max_size=2)
    first = small.add({})
    small.add({})
    assert small.is_full
    with pytest.raises(QueueFullError, match="2 unfinished"):
        small.add({})
    first.mark_completed()
    small.update(first)
    assert (small.is_full, small.size) == (False, 2)
    small.add({})
    assert not queue.is_full


def test_stats_count_every_status(queue):
    for n in range(6):
        queue.add({}, item_id=str(n))
    for n, mark in enumerate(("mark_completed", "mark_completed", "mark_failed", "mark_suspended", "mark_processing")):
        queue.update(getattr(queue.get(str(n)), mark)())
    stats = queue.stats
    assert stats == QueueStats(pending=1, processing=1, completed=2, failed=1, suspended=1) == queue.get_stats()
    assert (stats.active, stats.total, queue.size) == (3, 6, 6)
    assert stats.success_rate == pytest.approx(2 / 3)
    assert stats.to_dict() == {
        "pending": 1, "processing": 1, "completed": 2, "failed": 1, "suspended": 1, "active": 3, "total": 6,
        "success_rate": stats.success_rate,
    }  # fmt: skip
    assert QueueStats().success_rate == 0.0
    assert [queue.count_by_status(status) for status in QueueItemStatus] == [1, 1, 2, 1, 1]
    assert (queue.count_pending(), queue.count_failed(), len(queue.list_completed())) == (1, 1, 2)


def test_hooks_are_called_at_once_and_an_error_in_one_changes_nothing(caplog):
    told = []

    def on_update(item):
        told.append(("updated", item.id, item.status.value))
        raise RuntimeError("metrics are down")

    hooks = QueueHooks(
        on_add=lambda item: told.append(("added", item.id)),
        on_update=on_update,
        on_remove=lambda item_id: told.append(("removed", item_id)),
    )
    queue = MemoryQueue(hooks=hooks)
    item = queue.add({}, item_id="a")
    process(queue, item)
    item.mark_completed()
    queue.update(item)
    queue.remove("a")
    queue.add({}, item_id="b")
    queue.clear()
    assert told == [
        ("added", "a"), ("updated", "a", "processing"), ("updated", "a", "completed"), ("removed", "a"),
        ("added", "b"), ("removed", "b"),
    ]  # fmt: skip
    assert "hook on_update failed for item a" in caplog.text


# -- threads -----------------------------------------------------------------------------------------------------------


def test_many_threads_take_no_item_twice(queue):
    for n in range(400):
        queue.add({}, item_id=str(n))
    with ThreadPoolExecutor(8) as pool:
        found = [one for ids in pool.map(lambda _: taken(queue), range(8)) for one in ids]
    assert len(found) == len(set(found)) == 400


def test_adding_taking_and_updating_at_once_loses_nothing(queue):
    done, total = [], 6 * 50
    enough = threading.Event()

    def produce(number):
        for n in range(50):
            queue.add({"n": n}, item_id=f"{number}-{n}", priority=1 + n % 10)

    def consume():
        while not enough.is_set():
            item = queue.get_next()
            if item is None:
                enough.wait(0.001)
                continue
            process(queue, item)
            item.mark_completed()
            queue.update(item)
            done.append(item.id)
            if len(done) >= total:
                enough.set()

    threads = [threading.Thread(target=produce, args=(n,)) for n in range(6)]
    threads += [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(done) == len(set(done)) == total
    assert queue.stats == QueueStats(completed=total)


def test_two_threads_that_work_through_a_list_process_each_item_once(queue):
    for n in range(200):
        queue.add({}, item_id=str(n))
    start, done = threading.Barrier(4), []

    def work():
        start.wait(60)
        for item in queue.list_pending():
            item.mark_processing()
            try:
                queue.update(item)
            except ItemTakenError:
                continue
            done.append(item.id)
            item.mark_completed()
            queue.update(item)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(done, key=int) == [str(n) for n in range(200)]


def test_an_old_copy_cannot_take_or_complete_what_another_one_has(queue):
    queue.add({}, item_id="a")
    [copy] = queue.list_pending()
    [other] = queue.list_pending()
    process(queue, copy)
    for mark in (other.mark_processing, other.mark_completed, other.mark_failed, other.mark_suspended):
        mark()
        with pytest.raises(ItemTakenError, match="since this copy"):
            queue.update(other)
    assert queue.get("a").is_processing
    copy.mark_completed()
    queue.update(copy)


# -- asyncio -----------------------------------------------------------------------------------------------------------


async def test_waiting_ends_when_another_thread_adds_an_item(queue, monkeypatch):
    monkeypatch.setattr(waiters, "CHECK_EVERY", 600.0)
    waiting = asyncio.create_task(queue.wait_for_item(timeout=600))
    await asyncio.sleep(0)
    await asyncio.to_thread(queue.add, {}, "a")
    async with asyncio.timeout(60):
        assert await waiting
    assert await queue.wait_for_item()
    queue.get_next()
    assert not await queue.wait_for_item(timeout=0)


async def test_the_adapter_gets_items_by_priority_and_waits_for_them():
    adapter = AsyncQueueAdapter(max_size=3)
    assert await adapter.get(timeout=0) is None
    waiting = asyncio.create_task(adapter.get(timeout=60))
    await asyncio.sleep(0)
    adapter.put_nowait({"n": 1}, priority=7)
    first = await waiting
    assert first.data == {"n": 1}
    adapter.update(first.mark_processing())
    adapter.update(first.mark_completed())
    await adapter.put({"n": 2}, priority=5)
    adapter.put_nowait({"n": 3}, priority=1)
    adapter.put_nowait({"n": 4}, priority=9)
    with pytest.raises(QueueFullError):
        adapter.put_nowait({})
    assert (adapter.qsize(), adapter.full(), adapter.empty()) == (3, True, False)
    assert [item.data["n"] for item in await adapter.get_batch(2)] == [3, 2]
    assert [item.data["n"] for item in await adapter.get_batch(5, timeout=0.1)] == [4]
    assert await adapter.get_batch(5, timeout=0) == []
    assert adapter.stats.completed == 1


async def test_the_adapter_takes_a_queue_that_is_empty(queue):
    adapter = AsyncQueueAdapter(queue)
    queue.add({}, item_id="a")
    assert (await adapter.get()).id == "a"
    assert adapter.queue is queue


# -- the core does no file I/O -----------------------------------------------------------------------------------------

NO_FILES = """
import sys
from pywats_queue.queue import MemoryQueue, QueueHooks
assert not [name for name in sys.modules if name.startswith("pywats_queue.client")]
queue = MemoryQueue()
queue.add({})
files = []
sys.addaudithook(lambda event, args: files.append(event) if event.split(".")[0] in WATCHED else None)
WATCHED = {"open", "os", "shutil", "tempfile", "pathlib", "socket", "subprocess", "sqlite3"}
queue = MemoryQueue(max_size=9, hooks=QueueHooks(on_add=print))
for n in range(3):
    queue.add({"n": n}, priority=1 + n, metadata={"a": [1]})
item = queue.get_next().mark_processing()
queue.update(item)
queue.update(item.mark_failed("x"))
queue.update(queue.get_next_any().mark_completed())
queue.retry_failed(), queue.stats, queue.list_pending(), queue.clear_completed(), queue.clear()
print("events", files)
"""


def test_the_core_does_no_file_io():
    ran = subprocess.run(
        [sys.executable, "-c", NO_FILES], cwd=EXAMPLE, capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "events []"


def test_the_core_imports_nothing_that_does_file_io():
    allowed = {"daybreak.core", "daybreak.policy", "daybreak.store", "daybreak.stores.memory"}
    refused = {"os", "io", "pathlib", "shutil", "tempfile", "socket", "subprocess", "sqlite3", "mmap"}
    for module in (EXAMPLE / "pywats_queue" / "queue").glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level < 2, f"{module.name} imports from outside the core"
                names = [] if node.level else [node.module]
            for name in names:
                assert name.split(".")[0] not in refused, f"{module.name} imports {name}"
                if name.startswith("daybreak"):
                    assert any(name == one or name.startswith(f"{one}.") for one in allowed), f"{module.name}: {name}"


def test_a_status_equals_its_value():
    assert QueueItemStatus.PENDING == "pending"
    assert f"{QueueItemStatus.FAILED}" == "failed"
    queue = MemoryQueue()
    item = queue.add(1, item_id="a")
    item.status = "completed"
    assert item.is_completed
    queue.update(item)
    queue.add(2, item_id="b")
    assert [queue.count_by_status(status) for status in ("completed", "pending")] == [1, 1]
    assert [[item.id for item in queue.list_by_status(status)] for status in ("completed", "pending")] == [["a"], ["b"]]
    assert queue.clear("completed") == 1


def test_hooks_may_be_methods_of_a_subclass():
    seen = []

    class Recorder(QueueHooks):
        def on_add(self, item):
            seen.append(item.id)

    queue = MemoryQueue(hooks=Recorder())
    queue.add(1, item_id="a")
    queue.remove("a")
    assert seen == ["a"]


def test_any_object_with_the_names_of_hooks_will_do():
    hooks = Mock()
    queue = MemoryQueue(hooks=hooks)
    item = queue.add(1, item_id="a")
    queue.update(item.mark_processing())
    queue.remove("a")
    hooks.on_add.assert_called_once_with(item)
    hooks.on_update.assert_called_once_with(item)
    hooks.on_remove.assert_called_once_with("a")


async def test_an_adapter_takes_a_batch_without_a_number_and_removes_items():
    adapter = AsyncQueueAdapter()
    for number in range(11):
        adapter.put_nowait(number, item_id=str(number))
    assert [item.data for item in await adapter.get_batch()] == list(range(10))
    assert [adapter.remove("10"), adapter.remove("10")] == [True, False]


@pytest.mark.parametrize("takes", [True, False])
def test_an_attempt_counts_when_it_is_suspended_in_the_same_update(queue, takes):
    item = queue.add(1, item_id="a")
    if takes:
        assert queue.get_next() is item
    queue.update(item.mark_processing().mark_suspended("hold"))
    assert (item.is_suspended, item.attempts, item.last_error) == (True, 1, "hold")
    queue.update(item.reset_to_pending())
    assert queue.get_next().attempts == 1


def test_an_item_that_is_suspended_before_it_is_processed_has_no_attempt(queue):
    queue.add(1)
    item = queue.get_next()
    queue.update(item.mark_suspended("hold"))
    assert (item.is_suspended, item.attempts) == (True, 0)

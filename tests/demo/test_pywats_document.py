"""Every snippet, table and diagram of the pyWATS queue document, replayed. The lines are the document's own, with the
names of the packages changed; a comment says what was wrong where a line had to change."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import tempfile
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge
from pywats_queue import AsyncWATS, NetworkError, ValidationError, pyWATS
from pywats_queue.client.queue import PersistentQueue, folders
from pywats_queue.client.service import AsyncPendingQueue
from pywats_queue.queue import BaseQueue, MemoryQueue, QueueHooks, QueueItem, QueueItemStatus, QueueStats

from daybreak.adapters.wats.stand_in import TOKEN, Faults, StandIn

IN_MEMORY = "/dev/shm"  # noqa: S108 - a directory of its own is made in it; syncing files there costs nothing
logger = logging.getLogger(__name__)


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if Path(IN_MEMORY).is_dir() else None) as place:
        yield str(Path(place) / "Queue")  # for C:/WATS/Queue
        folders.wait_until_closed()


@pytest.fixture
def server():
    with StandIn() as server:
        yield server


@pytest.fixture
def api(server):
    api = pyWATS(service=server.url, api_token=TOKEN)
    yield api
    api.close()


def report_of(api, number=1):
    return api.report.create_uut_report(serial_number=f"SN{number}", part_number="PN789")


# -- diagrams and tables -----------------------------------------------------------------------------------------------

MEMBERS = {
    BaseQueue: "add get update remove list_pending list_processing list_completed list_failed size stats",
    MemoryQueue: "add get update remove get_next list_by_status clear_completed _items _heap _lock",
    PersistentQueue: "add update remove",
    AsyncPendingQueue: "run stop _upload_report stats state",
    QueueItem: "mark_processing mark_completed mark_failed mark_suspended reset_to_pending can_retry is_pending "
    "is_processing is_completed is_failed __lt__",
    QueueStats: "active total success_rate to_dict",
}


def test_the_classes_have_the_members_of_the_diagrams():
    for kind, members in MEMBERS.items():
        assert [name for name in members.split() if not hasattr(kind, name)] == []
    assert issubclass(MemoryQueue, BaseQueue)
    assert issubclass(PersistentQueue, MemoryQueue)
    assert not issubclass(AsyncPendingQueue, MemoryQueue)
    properties = {BaseQueue: "size stats", QueueItem: "can_retry is_pending", QueueStats: "active total success_rate"}
    for kind, names in properties.items():
        assert all(isinstance(inspect.getattr_static(kind, name), property) for name in names.split())
    assert list(inspect.signature(QueueItem).parameters) == [
        "id", "data", "priority", "status", "created_at", "updated_at", "attempts", "max_attempts", "last_error",
        "metadata",
    ]  # fmt: skip
    assert list(inspect.signature(QueueStats).parameters) == [
        "pending", "processing", "completed", "failed", "suspended",
    ]  # fmt: skip


def test_the_constructors_have_the_documents_parameters_and_defaults():
    def parameters(kind):
        return {name: one.default for name, one in inspect.signature(kind).parameters.items()}

    assert parameters(MemoryQueue) == {"max_size": None, "default_max_attempts": 3, "hooks": None}
    assert parameters(PersistentQueue) == {
        "queue_dir": inspect.Parameter.empty, "max_size": None, "default_max_attempts": 3, "delete_completed": True,
        "auto_load": True, "hooks": None,
    }  # fmt: skip
    pending = parameters(AsyncPendingQueue)
    assert (pending["max_concurrent"], pending["max_queue_size"]) == (5, 10000)
    assert list(pending)[:4] == ["api", "reports_dir", "max_concurrent", "max_queue_size"]
    minutes = (AsyncPendingQueue.PROCESSING_TIMEOUT, AsyncPendingQueue.ERROR_RETRY_DELAY)
    assert [one.total_seconds() / 60 for one in minutes] == [30, 5]
    assert AsyncPendingQueue.MAX_RETRIES == 5


# from, marks, max_attempts, to
TRANSITIONS = [
    (["mark_processing"], 3, "processing"),
    (["mark_processing", "mark_completed"], 3, "completed"),
    (["mark_processing", "mark_failed"], 3, "pending"),  # attempts < max_attempts; the code made it FAILED
    (["mark_processing", "mark_failed"], 1, "failed"),  # attempts >= max_attempts
    (["mark_processing", "mark_suspended"], 3, "suspended"),
    (["mark_processing", "mark_suspended", "reset_to_pending"], 3, "pending"),
]


@pytest.mark.parametrize(("marks", "attempts", "status"), TRANSITIONS)
@pytest.mark.parametrize("kind", ["memory", "files"])
def test_the_state_transitions_table(folder, kind, marks, attempts, status):
    queue = MemoryQueue() if kind == "memory" else PersistentQueue(folder, delete_completed=False)
    queue.add({}, item_id="a", max_attempts=attempts)
    item = queue.get_next()
    for mark in marks:
        getattr(item, mark)()
        queue.update(item)
    assert queue.get("a").status is QueueItemStatus(status)
    if status in ("completed", "failed"):
        assert queue.remove("a")
        assert queue.get("a") is None


def test_the_priority_ordering_diagram():
    queue = MemoryQueue()
    for name, priority in (("E", 10), ("D", 5), ("B", 2), ("A", 1), ("C", 2)):
        queue.add({}, item_id=name, priority=priority)
    assert [queue.get_next().id for _ in range(5)] == ["A", "B", "C", "D", "E"]


def test_the_comparison_logic():
    one, two = QueueItem("1", {}, priority=2), QueueItem("2", {}, priority=2)
    assert (one < two) == ((one.priority, one.created_at) < (two.priority, two.created_at))
    assert QueueItem("3", {}, priority=1) < one


@pytest.mark.parametrize("status", ["pending", "processing", "completed", "failed", "suspended"])
def test_the_table_of_file_extensions(tmp_path, status):
    queue = PersistentQueue(tmp_path, delete_completed=False)
    item = queue.add({"sn": "1"}, item_id="r")
    mark = {"pending": "reset_to_pending"}.get(status, f"mark_{status}")
    queue.update(getattr(item, mark)())
    found = sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("."))
    assert found == [f"r.{status}.meta.json", f"r.{status}.wsjf"]


# -- queue statistics --------------------------------------------------------------------------------------------------


def test_example_usage_of_statistics(folder, capsys):
    queue = PersistentQueue(queue_dir=folder)
    for _ in range(3):
        queue.add({})
    queue.update(queue.get_next().mark_completed())

    # Get statistics
    stats = queue.stats
    print(f"Pending: {stats.pending}")
    print(f"Processing: {stats.processing}")
    print(f"Completed: {stats.completed}")
    print(f"Failed: {stats.failed}")
    print(f"Success Rate: {stats.success_rate:.1%}")

    assert capsys.readouterr().out.split("\n")[:5] == [
        "Pending: 2", "Processing: 0", "Completed: 1", "Failed: 0", "Success Rate: 100.0%",
    ]  # fmt: skip
    assert QueueStats(150, 5, 1200, 8).success_rate == pytest.approx(0.993, abs=0.001)


# -- hooks -------------------------------------------------------------------------------------------------------------


def test_hook_interface(capsys):
    hooks = QueueHooks(
        on_add=lambda item: print(f"Added: {item.id}"),
        on_update=lambda item: print(f"Updated: {item.id} → {item.status.value}"),
        on_remove=lambda item_id: print(f"Removed: {item_id}"),
    )

    queue = MemoryQueue(hooks=hooks)  # the code had no such parameter, and never called a hook
    item = queue.add({}, item_id="a")
    queue.update(item.mark_processing())
    queue.remove("a")
    assert capsys.readouterr().out == "Added: a\nUpdated: a → processing\nRemoved: a\n"


def test_prometheus_metrics(folder):
    registry = CollectorRegistry()
    items_added = Counter("queue_items_added_total", "Total items added", registry=registry)
    items_completed = Counter("queue_items_completed_total", "Total items completed", registry=registry)
    queue_depth = Gauge("queue_depth", "Current queue depth", registry=registry)

    def on_add_hook(item):
        items_added.inc()
        queue_depth.inc()

    def on_update_hook(item):
        if item.is_completed:
            items_completed.inc()
            queue_depth.dec()

    hooks = QueueHooks(on_add=on_add_hook, on_update=on_update_hook)
    queue = PersistentQueue(queue_dir=folder, hooks=hooks)
    for _ in range(3):
        queue.add({})
    item = queue.get_next().mark_processing()
    queue.update(item)
    queue.update(item.mark_completed())
    values = [registry.get_sample_value(name) for name in
              ("queue_items_added_total", "queue_items_completed_total", "queue_depth")]  # fmt: skip
    assert values == [3, 1, 2]


# -- integration examples ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("errors", "rounds"), [(0, 1), (2, 3)])
def test_example_1_basic_report_queuing(folder, errors, rounds, capsys):
    with StandIn(faults=Faults(errors=errors)) as server:
        # Initialize API and queue
        api = pyWATS(service=server.url, api_token=TOKEN)
        queue = PersistentQueue(queue_dir=folder)

        # Create and queue report
        report = api.report.create_uut_report(
            serial_number="SN123456",
            part_number="PN789",
        )
        report.add_numeric_step("vout", 3.3, "V", 3.2, 3.4)  # ... add steps ...

        # Add to queue with high priority
        item = queue.add(report, priority=2)  # High priority
        print(f"Queued: {item.id} with priority {item.priority}")

        # Process queue. The document has one round; an item that failed is pending again, and needs another one.
        for _ in range(rounds):
            for item in queue.list_pending():
                item.mark_processing()
                queue.update(item)  # takes exactly this item; another program that lists it too gets an error here

                try:
                    api.report.submit_uut(item.data)
                    item.mark_completed()
                except Exception as e:  # noqa: BLE001 - the document's
                    # Both branches of the document were the same: update() decides by the attempts.
                    item.mark_failed(str(e))

                queue.update(item)

        assert server.counts()["reports"] == 1
        assert queue.stats == QueueStats(completed=1)
        assert capsys.readouterr().out == f"Queued: {item.id} with priority 2\n"
        api.close()


async def test_example_2_async_concurrent_uploads(folder, server):
    # Initialize async API
    api = AsyncWATS(service=server.url, api_token=TOKEN)

    # Start async upload queue (5 concurrent uploads)
    queue = AsyncPendingQueue(api=api, reports_dir=folder, max_concurrent=5, max_queue_size=10000)

    # Run queue in background
    queue_task = asyncio.create_task(queue.run())

    # Queue will automatically upload .queued files
    # Files can be dropped by converters or other processes
    for n in range(12):
        whole = json.dumps(report_of(api, n).to_dict())
        (queue._reports_dir / f"{n}.tmp").write_text(whole)
        (queue._reports_dir / f"{n}.tmp").rename(queue._reports_dir / f"{n}.queued")

    # Monitor queue stats; the document does so for ever, and never stops the queue
    async with asyncio.timeout(120):
        while True:
            stats = queue.stats
            print(f"Queued: {stats['queued_files']}, Active: {stats['active_uploads']}")
            if stats["uploaded"] == 12:
                break
            await asyncio.sleep(0.01)
    await queue.stop()
    await queue_task
    await api.close()
    assert server.counts()["reports"] == 12


def test_example_3_priority_based_processing(folder):
    queue = PersistentQueue(queue_dir=folder)

    # Add reports with different priorities
    report_critical, report_normal, report_bulk = {"n": 1}, {"n": 5}, {"n": 8}
    queue.add(report_bulk, priority=8)  # Low priority - process last
    queue.add(report_normal, priority=5)  # Normal - default
    queue.add(report_critical, priority=1)  # Emergency - process first

    # Process in priority order
    order = []
    while queue.size > 0:
        item = queue.get_next()  # Gets highest priority item

        print(f"Processing {item.id} (priority: {item.priority})")
        item.mark_processing()
        queue.update(item)
        order.append(item.data["n"])

        # ... process ...  The document never completes the item, so its loop would not end.
        item.mark_completed()
        queue.update(item)
    assert order == [1, 5, 8]


# -- best practices ----------------------------------------------------------------------------------------------------


def test_retry_strategy(folder):
    queue, report = PersistentQueue(queue_dir=folder), {"sn": "1"}
    # Transient network errors - retry more
    queue.add(report, max_attempts=5)

    # Validation errors - fail fast
    queue.add(report, max_attempts=1)

    # Default - balanced
    queue.add(report, max_attempts=3)
    tried = {5: 0, 1: 0, 3: 0}
    while (item := queue.get_next()) is not None:
        tried[item.max_attempts] += 1
        queue.update(item.mark_processing())
        queue.update(item.mark_failed("no"))
    assert tried == {5: 5, 1: 1, 3: 3}
    assert queue.stats.failed == 3


def test_queue_capacity_management(folder, caplog):
    queue = PersistentQueue(queue_dir=folder)
    queue.add({})
    queue.add({})
    MAX_QUEUE_DEPTH = 1  # noqa: N806 - the document's name; there it is 10000

    if queue.size > MAX_QUEUE_DEPTH:
        logger.warning(f"Queue depth high: {queue.size}")  # noqa: G004 - the document's
    assert "Queue depth high: 2" in caplog.text


@pytest.mark.parametrize("kind", ["good", "invalid", "network"])
def test_error_handling(folder, server, api, kind):
    queue = PersistentQueue(queue_dir=folder, delete_completed=False)
    report = {"sn": "1"} if kind == "invalid" else report_of(api)
    queue.add(report, item_id="a")
    item = queue.get_next()
    item.mark_processing()  # the document forgets this and the next line; without them there is no attempt
    queue.update(item)
    if kind == "network":
        server.go_down(600)

    try:
        api.report.submit_uut(item.data)
        item.mark_completed()
    except ValidationError as e:
        # Permanent error - don't retry
        item.max_attempts = 0
        item.mark_failed(f"Validation error: {e}")
    except NetworkError as e:  # did not exist in the library
        # Transient error - retry
        item.mark_failed(f"Network error: {e}")

    queue.update(item)
    status = {"good": "completed", "invalid": "failed", "network": "pending"}[kind]
    assert queue.get("a").status.value == status
    word = {"good": None, "invalid": "Validation error", "network": "Network error"}[kind]
    assert word is None or queue.get("a").last_error.startswith(word)


def test_crash_recovery_testing(folder):
    queue = PersistentQueue(queue_dir=folder)
    queue.add({}, item_id="a")  # the document takes from an empty queue
    # 1. Simulate crash during processing
    item = queue.get_next()
    item.mark_processing()
    queue.update(item)
    # ... simulate crash (exit without completing) ...

    # 2. Restart queue
    queue2 = PersistentQueue(queue_dir=folder)
    # Item should be reset to PENDING with attempts incremented
    recovered = queue2.get("a")
    assert (recovered.status, recovered.attempts) == (QueueItemStatus.PENDING, 1)  # the crashed attempt, counted once


# -- troubleshooting ---------------------------------------------------------------------------------------------------


def test_queue_not_processing(folder, capsys):
    queue = PersistentQueue(queue_dir=folder)
    queue.add({})
    # Check queue state
    print(f"Size: {queue.size}")
    print(f"Stats: {queue.stats}")

    # For AsyncPendingQueue
    queue = AsyncPendingQueue(None, folder)
    print(f"State: {queue.state}")
    print(f"Active uploads: {queue.stats['active_uploads']}")
    assert capsys.readouterr().out.splitlines() == [
        "Size: 1",
        "Stats: QueueStats(pending=1, processing=0, completed=0, failed=0, suspended=0)",
        "State: Created",
        "Active uploads: 0",
    ]


def test_items_stuck_in_processing(folder):
    queue = PersistentQueue(queue_dir=folder)
    queue.add({}, item_id="stuck-item-id")
    queue.update(queue.get_next().mark_processing())
    # PersistentQueue - restart (auto-recovery)
    queue = PersistentQueue(queue_dir=folder)  # Resets PROCESSING → PENDING
    assert queue.get("stuck-item-id").is_pending
    queue.update(queue.get_next().mark_processing())

    # Manual reset
    item = queue.get("stuck-item-id")
    item.reset_to_pending()
    queue.update(item)
    assert queue.get_next().id == "stuck-item-id"


async def test_priority_not_working(folder):
    # Wrong: AsyncPendingQueue ignores priority. Here it does not: a name or a side file gives a report a priority.
    seen = []

    class Api:
        async def submit_uut(self, report):
            seen.append(report["n"])

    api = Api()
    api.report = api
    queue = AsyncPendingQueue(api, folder, max_concurrent=1)
    for name in ("a", "b.p2", "c.p1"):
        (queue._reports_dir / f"{name}.queued").write_text(json.dumps({"n": name}))
    await queue.submit_all_pending()
    assert seen == ["c.p1", "b.p2", "a"]

    # Right: PersistentQueue respects priority
    queue = PersistentQueue(folder)  # Priority + FIFO
    queue.add({"n": "later"}, priority=5)
    queue.add({"n": "now"}, priority=1)
    assert queue.get_next().data == {"n": "now"}


def test_high_memory_usage(tmp_path):
    # Enable auto-delete completed items
    queue = PersistentQueue(queue_dir=tmp_path / "a", delete_completed=True)
    queue.update(queue.add({}).mark_completed())
    assert list(queue) == []

    # Manually clear completed
    queue = PersistentQueue(queue_dir=tmp_path / "b", delete_completed=False)
    queue.update(queue.add({}).mark_completed())
    assert queue.clear_completed() == 1
    assert queue.is_empty

    # Limit queue size
    queue = PersistentQueue(queue_dir=tmp_path / "c", max_size=10000)
    assert queue.max_size == 10000

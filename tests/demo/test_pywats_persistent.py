"""pywats_queue: the queue in files, with the names of the pyWATS document."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from pywats_queue import (
    DuplicateItemError,
    ItemTakenError,
    PersistentQueue,
    QueueCriticalError,
    QueueError,
    QueueFullError,
    QueueHooks,
    QueueItemStatus,
)
from pywats_queue.client.queue import folders

EXAMPLE = Path(__file__).parents[2] / "examples" / "report_upload"
IN_MEMORY = "/dev/shm"  # noqa: S108 - a directory of its own is made in it; syncing files there costs nothing
PENDING, PROCESSING, COMPLETED, FAILED, SUSPENDED = QueueItemStatus


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if Path(IN_MEMORY).is_dir() else None) as place:
        yield Path(place) / "queue"
        folders.wait_until_closed()


@pytest.fixture
def queue(folder):
    return PersistentQueue(folder)


def process(queue, item):
    item.mark_processing()
    queue.update(item)
    return item


def names(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


# -- files -------------------------------------------------------------------------------------------------------------


def test_the_files_show_the_status(queue, folder):
    item = queue.add({"sn": "SN1"}, item_id="r1", priority=2, metadata={"station": "A", "tries": [1, {"x": None}]})
    assert names(folder) == ["r1.pending.meta.json", "r1.pending.wsjf"]
    assert json.loads((folder / "r1.pending.wsjf").read_text()) == {"sn": "SN1"}
    process(queue, item)
    assert names(folder) == ["r1.processing.meta.json", "r1.processing.wsjf"]
    item.mark_suspended("hold")
    queue.update(item)
    assert names(folder) == ["r1.suspended.meta.json", "r1.suspended.wsjf"]
    item.max_attempts = 0
    process(queue, item).mark_failed("no such part")
    queue.update(item)
    assert names(folder) == ["r1.failed.meta.json", "r1.failed.wsjf"]
    told = json.loads((folder / "r1.failed.meta.json").read_text())
    assert {name: told[name] for name in ("id", "priority", "status", "attempts", "max_attempts")} == {
        "id": "r1", "priority": 2, "status": "failed", "attempts": 2, "max_attempts": 3,
    }  # fmt: skip
    assert "no such part" in told["last_error"]
    assert told["custom"] == {"station": "A", "tries": [1, {"x": None}]}
    assert told["created_at"] < told["updated_at"]


@pytest.mark.parametrize("deletes", [True, False])
def test_completed_items_are_deleted_or_kept(folder, deletes):
    queue = PersistentQueue(folder, delete_completed=deletes)
    item = process(queue, queue.add({}, item_id="a"))
    item.mark_completed()
    queue.update(item)
    assert item.is_completed
    assert names(folder) == ([] if deletes else ["a.completed.meta.json", "a.completed.wsjf"])
    assert (queue.size, queue.stats.completed, queue.stats.success_rate) == (0 if deletes else 1, 1, 1.0)
    again = PersistentQueue(folder, delete_completed=deletes)
    assert (again.get_next(), again.size, again.stats.completed) == (None, 0 if deletes else 1, 1)
    assert PersistentQueue(folder).size == 0
    assert names(folder) == []


def test_an_item_that_was_completed_never_comes_back(queue, folder):
    for n in range(5):
        queue.add({"n": n}, item_id=str(n))
    for _ in range(3):
        item = process(queue, queue.get_next())
        item.mark_completed()
        queue.update(item)
    assert [item.id for item in PersistentQueue(folder)] == ["3", "4"]


# -- restart -----------------------------------------------------------------------------------------------------------


def test_everything_survives_a_restart(queue, folder):
    for n, priority in enumerate((5, 1, 5, 1, 9)):
        queue.add({"n": n}, item_id=str(n), priority=priority, max_attempts=7, metadata={"a": {"b": [1, 2]}, "c": "d"})
    before = list(queue)
    queue.close()
    again = PersistentQueue(folder)
    assert list(again) == before
    assert [again.get_next().id for _ in range(5)] == ["1", "3", "0", "2", "4"]


def test_recovery_resets_processing_to_pending_and_counts_the_attempt(queue, folder):
    for n in range(3):
        queue.add({"n": n}, item_id=str(n))
    process(queue, queue.get_next())
    queue.get_next()  # taken, but nobody began to work on it
    again = PersistentQueue(folder)
    assert [(item.id, item.status, item.attempts) for item in again] == [
        ("0", PENDING, 1), ("1", PENDING, 0), ("2", PENDING, 0),
    ]  # fmt: skip
    assert names(folder)[:2] == ["0.pending.meta.json", "0.pending.wsjf"]


def test_failed_and_suspended_items_stay_as_they_are(queue, folder):
    for name in ("failed", "suspended"):
        queue.add({}, item_id=name, max_attempts=1)
    failed = process(queue, queue.get("failed"))
    queue.update(failed.mark_failed("bad report"))
    queue.update(queue.get("suspended").mark_suspended("ask Ann"))
    again = PersistentQueue(folder)
    assert [(item.id, item.status, item.last_error) for item in again] == [
        ("failed", FAILED, "bad report"), ("suspended", SUSPENDED, "ask Ann"),
    ]  # fmt: skip
    assert again.get_next() is None


def test_attempts_used_up_over_crashes_end_the_item(folder):
    PersistentQueue(folder).add({}, item_id="a", max_attempts=2)
    for _ in range(2):
        queue = PersistentQueue(folder)
        item = process(queue, queue.get_next())
    assert not item.can_retry
    item.mark_failed("again")
    queue.update(item)
    assert item.is_failed


def test_priority_is_kept_through_every_status(folder):
    queue = PersistentQueue(folder)
    queue.add({}, item_id="a", priority=3)
    for mark in ("mark_processing", "mark_suspended", "reset_to_pending", "mark_processing", "mark_failed"):
        item = queue.get("a")
        getattr(item, mark)()
        queue.update(item)
        queue = PersistentQueue(folder)
        assert queue.get("a").priority == 3


def test_attempts_and_an_error_written_into_a_waiting_item_are_kept(queue, folder):
    first, item = queue.add({}, item_id="first"), queue.add({}, item_id="a")
    item.attempts, item.last_error = 2, "two tries by hand"
    queue.update(item)
    again = PersistentQueue(folder)
    assert (again.get("a").attempts, again.get("a").last_error) == (2, "two tries by hand")
    assert [one.id for one in again] == [first.id, "a"]
    last = process(again, (again.get_next(), again.get_next())[1])
    again.update(last.mark_failed("third"))
    assert (last.status, last.attempts) == (FAILED, 3)


def test_an_item_of_ours_that_lost_its_priority_has_five(queue, folder):
    queue.add({"n": 1}, item_id="a", priority=2)
    told = json.loads((folder / "a.pending.meta.json").read_text())
    del told["priority"]
    (folder / "a.pending.meta.json").write_text(json.dumps(told))
    item = PersistentQueue(folder).get("a")
    assert (item.priority, item.data) == (5, {"n": 1})


def test_changed_data_and_metadata_are_kept(queue, folder):
    item = queue.add({"n": 1}, item_id="a", metadata={"k": 1})
    item.metadata["more"] = {"list": [1, 2, {"deep": True}]}
    item.data["n"] = 2
    queue.update(item)
    again = PersistentQueue(folder).get("a")
    assert (again.data, again.metadata) == ({"n": 2}, {"k": 1, "more": {"list": [1, 2, {"deep": True}]}})
    final = PersistentQueue(folder)
    final.update(final.get("a").mark_completed())
    final.add({"n": 3}, item_id="a")
    assert (final.get("a").data, final.get("a").metadata) == ({"n": 3}, {})


def test_without_auto_load_the_queue_seems_empty_until_it_is_used(queue, folder):
    queue.add({}, item_id="a")
    later = PersistentQueue(folder, auto_load=False)
    assert (later.size, later.get("a"), later.get_next(), list(later)) == (0, None, None, [])
    later.add({}, item_id="b")
    assert [item.id for item in later] == ["a", "b"]


KILLED = """
import os, signal, sys
from pywats_queue.client.queue import PersistentQueue
queue = PersistentQueue(sys.argv[1])
for n in range(20):
    queue.add({"n": n}, item_id=str(n))
for n in range(20):
    item = queue.get_next()
    item.mark_processing()
    queue.update(item)
    if n == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    item.mark_completed()
    queue.update(item)
"""


def test_a_killed_process_loses_nothing_and_completed_items_stay_completed(folder):
    ran = subprocess.run([sys.executable, "-c", KILLED, folder], cwd=EXAMPLE, check=False, timeout=120)
    assert ran.returncode == -signal.SIGKILL
    queue = PersistentQueue(folder)
    assert [(item.id, item.attempts) for item in queue][:2] == [("7", 1), ("8", 0)]
    assert queue.size == 13


# -- files of others, and damaged ones ---------------------------------------------------------------------------------


def test_a_damaged_data_file_is_set_aside_and_the_rest_loads(queue, folder):
    for n in range(3):
        queue.add({"n": n}, item_id=str(n))
    queue.close()
    (folder / "1.pending.wsjf").write_text("{not json")
    assert [item.id for item in PersistentQueue(folder)] == ["0", "2"]
    assert (folder / "corrupt" / "1.pending.wsjf").read_text() == "{not json"


def test_a_damaged_file_is_found_though_another_queue_has_the_folder_open(queue, folder):
    queue.add({}, item_id="good")
    queue.add({}, item_id="bad")
    (folder / "bad.pending.wsjf").write_text("{not json")
    assert [item.id for item in PersistentQueue(folder)] == ["good"]


@pytest.mark.parametrize("metadata", [None, "", "{]", "[]", '{"priority": "high", "attempts": -1}'])
def test_missing_and_malformed_metadata_get_defaults(folder, metadata):
    folder.mkdir()
    (folder / "old.pending.wsjf").write_text('{"sn": "1"}')
    if metadata is not None:
        (folder / "old.pending.meta.json").write_text(metadata)
    [item] = PersistentQueue(folder)
    assert (item.id, item.data, item.priority, item.attempts, item.status) == ("old", {"sn": "1"}, 5, 0, PENDING)


def test_a_folder_of_the_original_is_taken_over(folder):
    folder.mkdir()
    for number, status in enumerate(("pending", "processing", "failed", "suspended", "completed")):
        told = {
            "id": status, "priority": 9 - number, "status": status, "created_at": f"2026-01-01T10:0{number}:00",
            "updated_at": "2026-01-01T11:00:00", "attempts": 1, "max_attempts": 4, "last_error": "e",
            "custom": {"station": number, "tags": ["a"]},
        }  # fmt: skip
        (folder / f"{status}.{status}.wsjf").write_text(json.dumps({"n": number}))
        (folder / f"{status}.{status}.meta.json").write_text(json.dumps(told))
    queue = PersistentQueue(folder)
    assert [(item.id, item.status, item.attempts, item.priority) for item in queue] == [
        ("suspended", SUSPENDED, 1, 6), ("failed", FAILED, 1, 7), ("processing", PENDING, 2, 8),
        ("pending", PENDING, 1, 9),
    ]  # fmt: skip
    assert queue.get("processing").metadata == {"station": 1, "tags": ["a"]}


def test_a_failed_item_is_repaired_by_renaming_its_files(queue, folder):
    queue.update(queue.add({"n": 1}, item_id="a").mark_failed("x"))
    for suffix in ("wsjf", "meta.json"):
        (folder / f"a.failed.{suffix}").rename(folder / f"a.pending.{suffix}")
    assert PersistentQueue(folder).get_next().id == "a"


@pytest.mark.parametrize(
    "item_id",
    ["../evil", "/etc/passwd", "a/b\\c:d*?|<>", "with space", "..", "ünïcode", "new\nline", "x" * 5000, "", "."],
)
def test_no_id_leaves_the_folder_or_is_too_long(queue, folder, item_id):
    outside = sorted(folder.parent.iterdir())
    queue.add({"n": 1}, item_id=item_id)
    with pytest.raises(DuplicateItemError):
        queue.add({}, item_id=item_id)
    again = PersistentQueue(folder)
    assert again.get(item_id).data == {"n": 1}
    assert [item.id for item in again] == [item_id]
    assert len(names(folder)) == 2
    assert sorted(folder.parent.iterdir()) == outside
    assert again.remove(item_id)
    assert names(folder) == []


@dataclasses.dataclass
class Report:
    sn: str

    def to_dict(self):
        return {"serial": self.sn}


class Model:
    def model_dump(self, mode, by_alias):
        return {"mode": mode, "alias": by_alias}


def test_reports_of_several_kinds_are_stored(queue, folder):
    for data in (Report("1"), Model(), "<xml/>", [1, 2], None, 3.5):
        queue.add(data)
    assert [item.data for item in PersistentQueue(folder)] == [
        {"serial": "1"}, {"mode": "json", "alias": True}, "<xml/>", [1, 2], None, 3.5,
    ]  # fmt: skip


@pytest.mark.parametrize("data", [object(), {"a": float("nan")}, {"a": {1j}}, "\ud800"])
def test_a_report_that_cannot_be_stored_is_refused_and_leaves_nothing(queue, folder, data):
    with pytest.raises(QueueError, match=r"item bad cannot be stored as JSON"):
        queue.add(data, item_id="bad")
    assert names(folder) == []


def test_metadata_that_cannot_be_stored_is_refused(queue):
    with pytest.raises(QueueError, match="meta 'x'"):
        queue.add({}, metadata={"x": object()})


# -- passes ------------------------------------------------------------------------------------------------------------


def test_process_pending_completes_what_succeeds(queue, folder):
    for n in range(3):
        queue.add({"n": n}, priority=9 - n)
    seen = []
    assert queue.process_pending(lambda item: seen.append(item.data["n"])) == {"success": 3, "failed": 0, "skipped": 0}
    assert (seen, queue.size, names(folder)) == ([2, 1, 0], 0, [])


def test_process_pending_counts_failures_and_tries_them_in_later_passes(queue):
    for n in range(3):
        queue.add({"n": n}, item_id=str(n), max_attempts=2)

    def processor(item):
        if item.data["n"] == 1:
            raise ValueError("no network")
        return item.data["n"] != 2

    assert queue.process_pending(processor) == {"success": 1, "failed": 2, "skipped": 0}
    assert [(item.last_error, item.attempts) for item in queue.list_failed()] == [
        ("no network", 1), ("the processor returned False", 1),
    ]  # fmt: skip
    assert queue.process_pending(processor, include_failed=False) == {"success": 0, "failed": 0, "skipped": 0}
    assert queue.process_pending(processor) == {"success": 0, "failed": 2, "skipped": 0}
    assert queue.process_pending(processor) == {"success": 0, "failed": 0, "skipped": 2}
    assert queue.retry_failed() == 2
    assert queue.process_pending(lambda item: True) == {"success": 2, "failed": 0, "skipped": 0}


def test_process_pending_with_and_without_failed_items(queue):
    item = queue.add({}, item_id="a")
    item.mark_processing()
    item.mark_failed("before")
    queue.update(item)
    assert queue.process_pending(lambda item: True, include_failed=False)["success"] == 0
    assert queue.process_pending(lambda item: True, include_failed=True)["success"] == 1


def test_clear_by_status_deletes_the_files_of_that_status(queue, folder):
    queue.add({}, item_id="a")
    queue.update(queue.add({}, item_id="b").mark_failed("x"))
    assert queue.clear(FAILED) == 1
    assert names(folder) == ["a.pending.meta.json", "a.pending.wsjf"]
    assert queue.clear() == 1
    assert names(folder) == []


# -- limits and sharing ------------------------------------------------------------------------------------------------


def test_the_size_limit_holds_over_a_restart(folder):
    queue = PersistentQueue(folder, max_size=2)
    queue.add({})
    queue.add({})
    with pytest.raises(QueueFullError):
        queue.add({})
    again = PersistentQueue(folder, max_size=3)
    again.add({})
    with pytest.raises(QueueFullError):
        again.add({})
    PersistentQueue(folder).add({})


def test_two_queues_on_one_folder_share_its_items(folder):
    one, two = PersistentQueue(folder), PersistentQueue(folder)
    one.add({}, item_id="a")
    two.add({}, item_id="b")
    assert [item.id for item in one] == [item.id for item in two] == ["a", "b"]
    assert {one.get_next().id, two.get_next().id} == {"a", "b"}
    assert PersistentQueue(folder).size == 2


def test_a_new_queue_takes_back_what_another_one_was_processing(folder):
    queue = PersistentQueue(folder)
    queue.add({}, item_id="a")
    item = process(queue, queue.get_next())
    again = PersistentQueue(folder)
    for mark in (item.mark_completed, item.mark_failed, item.mark_suspended):
        mark()
        with pytest.raises(ItemTakenError):
            queue.update(item)
    assert again.get("a").is_pending
    taken = process(again, again.get_next())
    taken.mark_completed()
    again.update(taken)
    assert queue.size == again.size == 0


def test_another_process_is_refused_the_folder_by_name(queue, folder):
    code = f"from pywats_queue import PersistentQueue; PersistentQueue({str(folder)!r})"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=EXAMPLE, check=False, timeout=120, capture_output=True, text=True
    )
    assert f"in use by process {os.getpid()}" in ran.stderr
    queue.close()
    ran = subprocess.run([sys.executable, "-c", code], cwd=EXAMPLE, check=False, timeout=120)
    assert ran.returncode == 0


def test_a_folder_is_released_when_its_queues_are_gone(folder):
    PersistentQueue(folder).add({}, item_id="a")
    gc.collect()
    folders.wait_until_closed()
    code = f"from pywats_queue import PersistentQueue; print(PersistentQueue({str(folder)!r}).size)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=EXAMPLE, check=False, timeout=120, capture_output=True)
    assert ran.stdout.split() == [b"1"]


def test_threads_of_two_queues_take_no_item_twice(folder):
    queues = [PersistentQueue(folder), PersistentQueue(folder)]
    for n in range(60):
        queues[0].add({}, item_id=str(n))
    done = []

    def work(queue):
        while (item := queue.get_next()) is not None:
            process(queue, item).mark_completed()
            queue.update(item)
            done.append(item.id)

    threads = [threading.Thread(target=work, args=(queues[n % 2],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(done, key=int) == [str(n) for n in range(60)]


def test_a_disk_that_cannot_be_written_refuses_and_changes_nothing(queue, folder, monkeypatch):
    item = queue.add({"n": 1}, item_id="a")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("daybreak.stores.directory.journal.Journal.append", full)
    with pytest.raises(QueueCriticalError, match="disk is full"):
        queue.add({"n": 2}, item_id="b")
    item.mark_completed()
    with pytest.raises(QueueCriticalError, match="disk is full"):
        queue.update(item)
    monkeypatch.undo()
    assert [(one.id, one.status) for one in queue] == [("a", PENDING)]


def test_hooks_see_additions_updates_and_removals(folder):
    told = []
    hooks = QueueHooks(
        on_add=lambda item: told.append(("add", item.id)),
        on_update=lambda item: told.append(("update", item.status.value)),
        on_remove=lambda item_id: told.append(("remove", item_id)),
    )
    queue = PersistentQueue(folder, hooks=hooks)
    item = process(queue, queue.add({}, item_id="a"))
    queue.update(item.mark_completed())
    queue.add({}, item_id="b")
    queue.remove("b")
    assert told == [("add", "a"), ("update", "processing"), ("update", "completed"), ("add", "b"), ("remove", "b")]


def test_a_large_queue_keeps_its_order(folder):
    queue = PersistentQueue(folder)
    priorities = [1 + n * 7 % 10 for n in range(300)]
    for n, priority in enumerate(priorities):
        queue.add({"n": n}, priority=priority)
    again = PersistentQueue(folder)
    assert again.size == 300
    assert [item.priority for item in again.list_pending()] == sorted(priorities)


def test_a_report_object_that_did_not_change_is_not_stored_again(queue, folder):
    item = process(queue, queue.add(Report("1"), item_id="a"))
    queue.update(item.mark_suspended())
    assert queue._changed("a") is None
    assert json.loads((folder / "a.suspended.wsjf").read_text()) == {"serial": "1"}
    assert item.data == Report("1")


def test_a_report_that_answers_to_every_name_is_stored_as_what_is_plain_of_it(folder):
    report = MagicMock()
    report.model_dump.return_value = {"sn": "1"}
    PersistentQueue(folder).add(report, item_id="r")
    assert json.loads((folder / "r.pending.wsjf").read_text()) == {"sn": "1"}


def test_a_queue_goes_on_when_somebody_deletes_its_files(folder):
    queue = PersistentQueue(folder)
    item = queue.add({"n": 1}, item_id="a")
    for path in folder.glob("a.*"):
        path.unlink()
    process(queue, item)
    assert names(folder) == ["a.processing.meta.json", "a.processing.wsjf"]
    for path in folder.glob("a.*"):
        path.unlink()
    assert queue.remove("a")
    queue.add({"n": 2}, item_id="b")
    assert names(folder) == ["b.pending.meta.json", "b.pending.wsjf"]

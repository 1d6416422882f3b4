"""pywats_queue: the upload service over a folder, and the WATS clients, against the stand-in of a WATS server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import AsyncMock, MagicMock

import pytest
import watchfiles
from pywats_queue import (
    AsyncPendingQueue,
    AsyncWATS,
    AuthenticationError,
    NetworkError,
    QueueError,
    ValidationError,
    pyWATS,
)
from pywats_queue.client.service import folder_watch
from pywats_queue.client.service.report_folder import ErrorInfo, ReportFolder, wait_left

from daybreak.adapters.wats.stand_in import TOKEN, Faults, StandIn

EXAMPLE = Path(__file__).parents[2] / "examples" / "report_upload"


class Api:
    """An API whose uploads wait until they are let through, and that records them."""

    def __init__(self, error=None):
        self.report = self
        self.error = error
        self.seen = []
        self.active = self.most = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def submit_uut(self, report):
        self.active += 1
        self.most = max(self.most, self.active)
        try:
            await asyncio.sleep(0)
            await self.gate.wait()
            self.seen.append(report["n"])
            if self.error is not None:
                raise self.error
        finally:
            self.active -= 1


def drop(folder, name, content=None, n=None):
    """A report appears whole."""
    folder.mkdir(exist_ok=True)
    scratch = folder / f".{name}"
    scratch.write_text(json.dumps({"n": name if n is None else n}) if content is None else content)
    scratch.rename(folder / name)


def names(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


async def until(condition):
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class Running:
    """A queue that runs in the background."""

    def __init__(self, queue):
        self.queue = queue

    async def __aenter__(self):
        self.task = asyncio.create_task(self.queue.run())
        await until(lambda: self.queue.is_running or self.task.done())
        return self.queue

    async def __aexit__(self, *_):
        await self.queue.stop()
        await self.task


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "reports"


# -- uploads -----------------------------------------------------------------------------------------------------------


async def test_reports_in_the_folder_and_new_ones_are_uploaded_and_deleted(folder):
    drop(folder, "a.queued")
    api = Api()
    queue = AsyncPendingQueue(api, folder)
    assert (queue.state, str(queue.state), queue.stats["queued_files"]) == ("Created", "Created", 1)
    async with Running(queue):
        assert queue.state == "Running"
        await until(lambda: api.seen == ["a.queued"])
        drop(folder, "b.queued")
        await until(lambda: queue.stats["uploaded"] == 2)
    assert (queue.state, names(folder)) == ("Stopped", [])
    assert queue.stats["active_uploads"] == 0


async def test_at_most_max_concurrent_uploads_are_under_way(folder):
    for n in range(20):
        drop(folder, f"{n:02}.queued", n=n)
    api = Api()
    api.gate.clear()
    async with Running(AsyncPendingQueue(api, folder, max_concurrent=3)) as queue:
        await until(lambda: api.active == 3)
        stats = queue.stats
        assert (stats["active_uploads"], stats["processing_files"], stats["queued_files"]) == (3, 3, 17)
        assert (queue.get_active_count(), queue.get_pending_count(), queue.queue_size) == (3, 17, 17)
        api.gate.set()
        await until(lambda: len(api.seen) == 20)
    assert api.most == 3
    assert api.seen == list(range(20))


async def test_an_urgent_report_overtakes_those_that_wait(folder):
    for n in range(6):
        drop(folder, f"{n}.queued", n=n)
    api = Api()
    api.gate.clear()
    async with Running(AsyncPendingQueue(api, folder, max_concurrent=1)) as queue:
        await until(lambda: api.active == 1)
        (folder / "side.meta.json").write_text('{"priority": 2}')
        drop(folder, "side.queued", n="side")
        drop(folder, "z.p1.queued", n="urgent")
        queue._on_change()
        await until(lambda: not queue._must_scan)
        await until(lambda: len(queue._queue._known) == 8)
        api.gate.set()
        await until(lambda: len(api.seen) == 8)
    assert api.seen == [0, "urgent", "side", 1, 2, 3, 4, 5]


@pytest.mark.parametrize("content", ["{not json", "", "\ud800".encode("utf-8", "surrogatepass")])
async def test_a_report_that_is_no_json_becomes_an_error(folder, content):
    folder.mkdir()
    (folder / "bad.queued").write_bytes(content if isinstance(content, bytes) else content.encode())
    drop(folder, "good.queued")
    api = Api()
    async with Running(AsyncPendingQueue(api, folder)) as queue:
        await until(lambda: api.seen == ["good.queued"] and queue.stats["error_files"] == 1)
    assert names(folder) == ["bad.error", "bad.error.info"]
    told = json.loads((folder / "bad.error.info").read_text())
    assert (told["attempts"], set(told)) == (1, {"error", "timestamp", "attempts"})


async def test_a_failed_upload_is_tried_again_later_and_at_most_five_times(folder, monkeypatch, caplog):
    monkeypatch.setattr(AsyncPendingQueue, "ERROR_RETRY_DELAY", timedelta(milliseconds=2))
    drop(folder, "a.queued", n=1)
    api = Api(error=ConnectionError("no network"))
    async with Running(AsyncPendingQueue(api, folder)) as queue:
        await until(lambda: "stays as a.error" in caplog.text)
        await until(lambda: not queue.get_active_count())
        queue._on_change()
        await asyncio.sleep(0.05)
    assert api.seen == [1] * 5
    assert names(folder) == ["a.error", "a.error.info"]
    told = json.loads((folder / "a.error.info").read_text())
    assert (told["attempts"], told["error"]) == (5, "ConnectionError: no network")
    async with Running(AsyncPendingQueue(api, folder)) as queue:
        await asyncio.sleep(0.05)
    assert len(api.seen) == 5


async def test_attempts_and_delays_go_on_after_a_restart(folder, monkeypatch):
    drop(folder, "a.error", n="a")
    drop(folder, "b.error", n="b")
    for name, age in (("a", 11), ("b", 9)):
        at = (datetime.now(UTC) - timedelta(minutes=age)).isoformat()
        (folder / f"{name}.error.info").write_text(json.dumps({"error": "x", "timestamp": at, "attempts": 2}))
    api = Api(error=ConnectionError("again"))
    async with Running(AsyncPendingQueue(api, folder)) as queue:
        await until(lambda: queue.stats["failed_attempts"] == 1 and not queue.get_active_count())
    assert api.seen == ["a"]  # b waits for the rest of its ten minutes
    assert json.loads((folder / "a.error.info").read_text())["attempts"] == 3
    assert names(folder) == ["a.error", "a.error.info", "b.error", "b.error.info"]


async def test_an_error_without_a_note_waits_from_the_time_of_its_file(folder):
    drop(folder, "old.error", n="old")
    drop(folder, "new.error", n="new")
    os.utime(folder / "old.error", (time.time() - 600, time.time() - 600))
    api = Api()
    async with Running(AsyncPendingQueue(api, folder)) as queue:
        await until(lambda: queue.stats["uploaded"] == 1)
    assert (api.seen, names(folder)) == (["old"], ["new.error"])


def test_the_delay_doubles():
    now = datetime.now(UTC)
    five = timedelta(minutes=5)
    waits = [wait_left(ErrorInfo("x", now, attempts), five) for attempts in range(6)]
    assert [round(wait.total_seconds() / 60) for wait in waits] == [0, 5, 10, 20, 40, 80]
    assert wait_left(ErrorInfo("x", now + timedelta(days=9), 1), five) == five  # a clock that was wrong


async def test_a_refused_report_is_not_tried_again(folder, caplog):
    drop(folder, "a.queued")
    api = Api(error=ValidationError("no part number", 400))
    async with Running(AsyncPendingQueue(api, folder)):
        await until(lambda: "stays as a.error" in caplog.text)
    assert len(api.seen) == 1
    assert json.loads((folder / "a.error.info").read_text())["permanent"] is True
    async with Running(AsyncPendingQueue(Api(), folder)) as queue:
        await asyncio.sleep(0.02)
        assert queue.stats["error_files"] == 1
        (folder / "a.error").rename(folder / "a.queued")  # a person corrected it
        await until(lambda: queue.stats["uploaded"] == 1)
    assert names(folder) == []


async def test_an_error_that_a_person_renames_to_queued_does_not_wait(folder):
    drop(folder, "a.queued")
    api = Api(error=ConnectionError("x"))
    async with Running(AsyncPendingQueue(api, folder)) as queue:
        await until(lambda: (folder / "a.error").exists() and not queue.get_active_count())
        api.error = None
        (folder / "a.error").rename(folder / "a.queued")
        await until(lambda: queue.stats["uploaded"] == 1)


async def test_stuck_files_of_a_crash_are_uploaded_at_the_start(folder):
    drop(folder, "stuck.processing", n=1)
    api = Api()
    async with Running(AsyncPendingQueue(api, folder)):
        await until(lambda: api.seen == [1])
    assert names(folder) == []


async def test_a_file_that_somebody_else_left_in_processing_is_freed_after_the_timeout(folder, monkeypatch):
    api = Api()
    async with Running(AsyncPendingQueue(api, folder)) as queue:
        drop(folder, "theirs.processing", n=1)
        queue._on_change()
        await until(lambda: not queue._must_scan)
        await asyncio.sleep(0.02)
        assert names(folder) == ["theirs.processing"]
        monkeypatch.setattr(AsyncPendingQueue, "PROCESSING_TIMEOUT", timedelta(seconds=-1))
        await asyncio.to_thread(queue._queue.scan, 100, timedelta(seconds=-1))
        monkeypatch.undo()
        queue._on_change()
        await until(lambda: api.seen == [1])


async def test_an_upload_that_takes_too_long_is_an_error(folder, monkeypatch):
    monkeypatch.setattr(AsyncPendingQueue, "PROCESSING_TIMEOUT", timedelta(milliseconds=20))
    drop(folder, "a.queued")
    api = Api()
    api.gate.clear()
    async with Running(AsyncPendingQueue(api, folder)) as queue:
        await until(lambda: queue.stats["error_files"] == 1)
    assert "TimeoutError" in json.loads((folder / "a.error.info").read_text())["error"]


# -- control -----------------------------------------------------------------------------------------------------------


async def test_pause_begins_nothing_and_resume_goes_on(folder):
    api = Api()
    async with Running(AsyncPendingQueue(api, folder)) as queue:
        await queue.pause()
        assert queue.state == "Paused"
        drop(folder, "a.queued")
        queue._on_change()
        await until(lambda: not queue._must_scan)
        await asyncio.sleep(0.05)
        assert (api.seen, names(folder)) == ([], ["a.queued"])
        queue.resume()
        await until(lambda: api.seen == ["a.queued"])


async def test_stop_waits_for_uploads_under_way(folder):
    drop(folder, "a.queued")
    api = Api()
    api.gate.clear()
    queue = AsyncPendingQueue(api, folder)
    running = asyncio.create_task(queue.run())
    await until(lambda: api.active == 1)
    stopping = asyncio.create_task(queue.stop())
    await asyncio.sleep(0.01)
    assert queue.state == "Stopping"
    api.gate.set()
    await stopping
    await running
    assert (api.seen, names(folder), queue.state) == (["a.queued"], [], "Stopped")


async def test_what_does_not_end_in_time_is_handed_back_uncharged(folder, monkeypatch):
    monkeypatch.setattr(AsyncPendingQueue, "STOP_TIMEOUT", timedelta(milliseconds=10))
    drop(folder, "a.queued")
    api = Api()
    api.gate.clear()
    async with Running(AsyncPendingQueue(api, folder)):
        await until(lambda: api.active == 1)
    assert names(folder) == ["a.queued"]


async def test_a_cancelled_run_hands_back_and_releases_the_folder(folder):
    drop(folder, "a.queued")
    api = Api()
    api.gate.clear()
    running = asyncio.create_task(AsyncPendingQueue(api, folder).run())
    await until(lambda: api.active == 1)
    running.cancel()
    api.gate.set()
    await asyncio.gather(running, return_exceptions=True)
    async with Running(AsyncPendingQueue(api, folder)):
        pass


async def test_stop_before_run_and_twice_is_harmless(folder):
    queue = AsyncPendingQueue(Api(), folder)
    await queue.stop()
    await queue.stop()
    assert queue.state == "Stopped"
    async with Running(queue):
        assert queue.state == "Running"


async def test_a_full_queue_says_so_and_leaves_the_rest_in_the_folder(folder):
    api = Api()
    queue = AsyncPendingQueue(api, folder, max_concurrent=1, max_queue_size=3)
    assert queue.can_accept_report()
    for n in range(10):
        drop(folder, f"{n}.queued", n=n)
    assert (queue.is_queue_full, queue.can_accept_report(), queue.stats["is_queue_full"]) == (True, False, True)
    async with Running(queue):
        await until(lambda: len(api.seen) == 10)
    assert (sorted(api.seen), queue.can_accept_report()) == (list(range(10)), True)


async def test_submit_all_pending_uploads_what_is_there(folder):
    for n in range(7):
        drop(folder, f"{n}.queued", n=n)
    api = Api()
    queue = AsyncPendingQueue(api, folder, max_queue_size=3)
    assert await queue.submit_all_pending() == 7
    async with Running(queue):
        drop(folder, "8.queued")
        assert await queue.submit_all_pending() == 1
    assert names(folder) == []


async def test_two_queues_cannot_work_on_one_folder(folder):
    async with Running(AsyncPendingQueue(Api(), folder)):
        with pytest.raises(QueueError, match="of this process works on"):
            await AsyncPendingQueue(Api(), folder).run()
        code = f"""if True:
            import asyncio
            from pywats_queue import AsyncPendingQueue
            asyncio.run(AsyncPendingQueue(None, {str(folder)!r}).run())"""
        ran = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", code], cwd=EXAMPLE, capture_output=True, text=True, timeout=120
        )
        assert f"a queue of process {os.getpid()} works on" in ran.stderr


async def test_completed_reports_can_be_kept(folder):
    drop(folder, "a.queued")
    async with Running(AsyncPendingQueue(Api(), folder, delete_completed=False)) as queue:
        await until(lambda: queue.stats["uploaded"] == 1)
    assert names(folder) == ["a.completed"]


async def test_a_second_report_of_the_same_name_overwrites_nothing(folder):
    drop(folder, "a.error", n="old")
    os.utime(folder / "a.error", (0, 0))
    drop(folder, "a.queued", n="new")
    api = Api()
    async with Running(AsyncPendingQueue(api, folder)) as queue:
        await until(lambda: queue.stats["uploaded"] == 1)
        queue._on_change()
        await until(lambda: queue.stats["uploaded"] == 2)
    assert (sorted(api.seen), names(folder)) == (["new", "old"], [])


async def test_a_stop_does_not_overwrite_a_second_report_of_the_same_name(folder, monkeypatch):
    monkeypatch.setattr(AsyncPendingQueue, "STOP_TIMEOUT", timedelta(milliseconds=10))
    drop(folder, "a.queued", n="old")
    api = Api()
    api.gate.clear()
    async with Running(AsyncPendingQueue(api, folder)):
        await until(lambda: api.active == 1)
        drop(folder, "a.queued", n="new")
    assert names(folder) == ["a.error", "a.queued"]
    found = {json.loads((folder / name).read_text())["n"] for name in names(folder)}
    assert found == {"old", "new"}


async def test_links_pipes_and_folders_are_left_alone(folder, tmp_path):
    folder.mkdir()
    (tmp_path / "secret").write_text('{"n": "secret"}')
    (folder / "link.queued").symlink_to(tmp_path / "secret")
    (folder / "folder.queued").mkdir()
    os.mkfifo(folder / "pipe.queued")
    drop(folder, "good.queued")
    api = Api()
    async with Running(AsyncPendingQueue(api, folder)) as queue:
        await until(lambda: queue.stats["uploaded"] == 1)
    assert api.seen == ["good.queued"]
    assert names(folder) == ["folder.queued", "link.queued", "pipe.queued"]


def test_a_file_that_vanishes_during_a_scan_is_no_error(folder, monkeypatch):
    drop(folder, "a.queued")
    reports = ReportFolder(folder)
    entries = list(reports._entries())
    (folder / "a.queued").unlink()
    monkeypatch.setattr(reports, "_entries", lambda: iter(entries))
    assert reports.files()["queued"] == {}
    assert not reports.move("a", "queued", "processing")


async def test_a_report_that_comes_before_the_folder_is_watched_does_not_wait_for_the_next_scan(folder, monkeypatch):
    begun, watched = asyncio.Event(), asyncio.Event()
    awatch = watchfiles.awatch

    async def late(*args, **options):
        begun.set()
        await watched.wait()
        async for changes in awatch(*args, **options):
            yield changes

    monkeypatch.setattr("watchfiles.awatch", late)
    monkeypatch.setattr(AsyncPendingQueue, "PERIODIC_CHECK_INTERVAL", timedelta(hours=1))
    api = Api()
    async with Running(AsyncPendingQueue(api, folder)) as queue:
        await begun.wait()
        await until(lambda: not queue._must_scan)
        await asyncio.sleep(0.05)
        drop(folder, "a.queued")
        watched.set()
        await until(lambda: api.seen == ["a.queued"])


async def test_where_a_folder_cannot_be_watched_it_is_read_now_and_then(folder, monkeypatch, caplog):
    def refuse(*_, **__):
        raise OSError(24, "inotify instance limit reached")

    monkeypatch.setattr("watchfiles.awatch", refuse)
    monkeypatch.setattr(folder_watch, "POLL_EVERY", 0.01)
    api = Api()
    async with Running(AsyncPendingQueue(api, folder)):
        await until(lambda: "cannot be watched" in caplog.text)
        drop(folder, "a.queued")
        await until(lambda: api.seen == ["a.queued"])


# -- WATS --------------------------------------------------------------------------------------------------------------


def report_of(api, number=1):
    report = api.report.create_uut_report(serial_number=f"SN{number}", part_number="PN789")
    report.add_numeric_step("vout", 3.31, "V", low_limit=3.2, high_limit=3.4)
    report.add_pass_fail_step("led", passed=True)
    return report


def test_a_report_is_created_and_submitted():
    with StandIn() as server:
        api = pyWATS(service=server.url, api_token=TOKEN)
        report = report_of(api)
        assert report.to_dict()["result"] == "P"
        assert api.report.submit_uut(report) == report.id
        assert api.report.submit_uut(report.to_dict()) == report.id
        stored = server.archive.get(report.id)
        assert [step["name"] for step in stored["root"]["steps"]] == ["vout", "led"]
        report.add_numeric_step("ripple", 0.5, "V", high_limit=0.1)
        assert report.to_dict()["result"] == "F"
        api.close()


def test_errors_say_whether_a_retry_helps():
    with StandIn(faults=Faults(errors=1, busy=1)) as server:
        api = pyWATS(service=server.url, api_token=TOKEN)
        with pytest.raises(NetworkError) as error:
            api.report.submit_uut(report_of(api))
        assert error.value.status == 500
        with pytest.raises(NetworkError):
            api.report.submit_uut(report_of(api))
        with pytest.raises(ValidationError):
            api.report.submit_uut({"sn": "1"})
        with pytest.raises(AuthenticationError):
            pyWATS(service=server.url, api_token="wrong" + TOKEN).report.submit_uut(report_of(api))
        url = server.url
        api.close()
    api = pyWATS(service=url, api_token=TOKEN)
    with pytest.raises(NetworkError):
        api.report.submit_uut(report_of(api))


async def test_uploads_with_faults_reach_the_server_once(folder, monkeypatch):
    monkeypatch.setattr(AsyncPendingQueue, "ERROR_RETRY_DELAY", timedelta(milliseconds=10))
    with StandIn(faults=Faults(errors=3, busy=3, lose=3, drop=3)) as server:
        api = AsyncWATS(service=server.url, api_token=TOKEN)
        for n in range(30):
            drop(folder, f"{n}.queued", content=json.dumps(report_of(api, n).to_dict()))
        async with Running(AsyncPendingQueue(api, folder)):
            await until(lambda: names(folder) == [])
        await api.close()
        assert server.counts()["reports"] == 30


async def test_a_blocking_api_works_too(folder):
    with StandIn() as server:
        api = pyWATS(service=server.url, api_token=TOKEN)
        for n in range(3):
            drop(folder, f"{n}.queued", content=json.dumps(report_of(api, n).to_dict()))
        assert await AsyncPendingQueue(api, folder).submit_all_pending() == 3
        api.close()


async def test_an_api_with_submit_raw_is_used(folder):
    class Raw:
        def __init__(self):
            self.report, self.seen = self, []

        async def submit_raw(self, report):
            self.seen.append(report["n"])

        def submit_uut(self, report):
            raise AssertionError("not this one")

    api = Raw()
    drop(folder, "a.queued")
    assert await AsyncPendingQueue(api, folder).submit_all_pending() == 1
    assert api.seen == ["a.queued"]


@pytest.mark.parametrize("make", [MagicMock, AsyncMock])
async def test_a_mock_of_the_original_tests_is_used(folder, make):
    api = make()
    api.report.submit_raw = AsyncMock()
    drop(folder, "a.queued")
    assert await AsyncPendingQueue(api, folder).submit_all_pending() == 1
    assert api.report.submit_raw.await_count == 1


async def test_a_run_that_was_only_just_begun_is_stopped(folder):
    queue = AsyncPendingQueue(Api(), folder)
    for _ in range(2):
        running = asyncio.create_task(queue.run())
        await queue.stop()
        await asyncio.wait_for(running, 60)
    assert queue.state == "Stopped"


async def test_waiting_reports_can_be_submitted_when_the_run_has_only_just_begun(folder):
    api = Api()
    queue = AsyncPendingQueue(api, folder)
    drop(folder, "a.queued", n=1)
    running = asyncio.create_task(queue.run())
    assert await queue.submit_all_pending() == 1
    await queue.stop()
    await asyncio.wait_for(running, 60)
    assert api.seen == [1]


async def test_a_size_of_zero_is_no_limit(folder):
    queue = AsyncPendingQueue(Api(), folder, max_concurrent=2, max_queue_size=0)
    drop(folder, "a.queued", n=1)
    assert (queue.max_concurrent, queue.max_queue_size) == (2, 0)
    assert queue.can_accept_report()
    assert await queue.submit_all_pending() == 1


@pytest.mark.parametrize("name", ["submit_raw", "submit_uut", "submit"])
async def test_an_api_may_have_any_one_of_the_names(folder, name):
    method = AsyncMock()
    drop(folder, "a.queued", n=1)
    await AsyncPendingQueue(SimpleNamespace(report=SimpleNamespace(**{name: method})), folder).submit_all_pending()
    method.assert_awaited_once_with({"n": 1})


async def test_an_api_that_cannot_submit_is_told_beside_the_report(folder):
    drop(folder, "a.queued", n=1)
    await AsyncPendingQueue(SimpleNamespace(report=SimpleNamespace()), folder).submit_all_pending()
    assert "has no submit_uut()" in (folder / "a.error.info").read_text()

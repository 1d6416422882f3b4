"""An app with a spool, over a wire that can be down, on PostgreSQL and Redis."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from datetime import timedelta

import pytest
from click.testing import CliRunner
from cuttable_wire import Wire

from daybreak import Daybreak, File, Resource, State
from daybreak.cli.root import root
from daybreak.errors import BadInput, Refused, ResultTimeout, StoreUnavailable

LIMIT = "2m"


@pytest.fixture
def wire(url):
    with Wire(url) as wire:
        yield wire


@pytest.fixture
def direct(url):
    """The store, without the wire."""
    with Daybreak(url) as app:
        app.count()
        yield app


def station(wire: Wire, tmp_path, **options) -> Daybreak:
    app = Daybreak(wire.url, spool=tmp_path / "jobs.spool", **options)

    @app.task
    def upload(serial: int) -> int:
        return serial

    @app.task
    def read(report: File) -> str:
        return report.path.read_text()

    return app


@pytest.fixture
def app(wire, tmp_path, direct):
    with station(wire, tmp_path) as app:
        yield app


def serials(direct: Daybreak) -> list[int]:
    return [info.args["serial"] for info in direct.find(state="queued")]


def drained(app: Daybreak) -> None:
    until = time.monotonic() + 120
    while app.spool_status().waiting:
        assert time.monotonic() < until, app.spool_status()
        time.sleep(0.02)


def test_jobs_wait_here_while_the_store_is_away_and_arrive_in_order(app, wire, direct):
    upload = app.find_task("upload")
    upload.submit(0)
    assert serials(direct) == [0]
    wire.down.set()
    away = [
        upload.submit(1),
        *upload.submit_many([{"serial": 2}, {"serial": 3}]),
        upload.using(priority="high", meta={"n": [1]}).submit(4),
    ]
    assert app.spool_status().waiting == 4
    assert serials(direct) == [0]
    wire.down.clear()
    upload.submit(5)  # behind those that wait, or after they have arrived
    drained(app)
    upload.submit(6)
    drained(app)  # this one may have waited as well
    assert serials(direct) == [4, 0, 1, 2, 3, 5, 6]
    assert [direct.job(job.id).info().args["serial"] for job in away] == [1, 2, 3, 4]
    assert away[3].info().meta == {"n": [1]}


async def test_the_async_twins_use_the_spool(app, wire, direct):
    upload = app.find_task("upload")
    wire.down.set()
    handles = await asyncio.gather(*(upload.asubmit(n) for n in range(40)))
    more = await upload.asubmit_many([{"serial": 40}])
    item = await app.queue("items").aadd({"x": 1}, id="it", metadata={"n": 1})
    assert (item.id, item.state, item.metadata) == ("it", State.QUEUED, {"n": 1})
    assert (await app.aspool_status()).waiting == 42
    with pytest.raises(StoreUnavailable):
        await app.aflush_spool()
    wire.down.clear()
    # Clients wait for a while after an outage, so that they do not all come back in the same second.
    async with asyncio.timeout(120):
        while (await app.aspool_status()).waiting:  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.05)
    assert await app.aflush_spool() == 0
    assert {job.id for job in [*handles, *more]} == {info.id async for info in direct.afind(task="upload")}
    assert (await direct.queue("items").aget("it")).data == {"x": 1}
    await app.aclose()
    await direct.aclose()


def test_a_lost_answer_makes_one_job(app, wire, direct):
    upload = app.find_task("upload")
    upload.submit(0)
    wire.cut_replies.set()
    job = upload.submit(1)
    wire.cut_replies.clear()
    drained(app)
    assert serials(direct) == [0, 1]
    assert direct.job(job.id).state() is State.QUEUED


def test_a_store_that_answers_nothing_is_away_too(app, wire, direct):
    upload = app.find_task("upload")
    upload.submit(0)
    wire.flowing.clear()
    upload.using(resource=Resource("licence", slots=2)).submit(1)
    item = app.queue("items").add("x", id="it")
    assert (item.id, app.spool_status().waiting) == ("it", 2)
    assert serials(direct) == [0]
    wire.flowing.set()
    drained(app)
    assert [info.args["serial"] for info in direct.find(task="upload")] == [1, 0]
    assert direct.resource("licence").info().slots == 2
    assert direct.queue("items").get("it").data == "x"


def test_an_item_goes_into_the_spool_when_its_answer_is_lost(app, wire, direct):
    app.queue("items").add("x", id="one")
    wire.cut_replies.set()
    app.queue("items").add("y", id="two")
    wire.cut_replies.clear()
    drained(app)
    assert [item.id for item in direct.queue("items")] == ["one", "two"]


def test_files_are_kept_as_they_were_at_the_submit(app, wire, direct, tmp_path):
    report = tmp_path / "report.txt"
    report.write_text("first")
    wire.down.set()
    job = app.find_task("read").submit(File(report))
    report.write_text("second")
    wire.down.clear()
    with app.worker(isolation="thread"):
        assert job.result(LIMIT) == "first"
    assert (tmp_path / "jobs.spool-files").stat().st_mode & 0o077 == 0


def test_a_handle_says_that_its_job_is_still_here(app, wire, monkeypatch, capsys):
    monkeypatch.setattr("daybreak.api.job_handle.ARRIVAL_LIMIT", timedelta())
    wire.down.set()
    job = app.find_task("upload").submit(1)
    with pytest.raises(ResultTimeout, match="waiting in the spool"):
        job.result(timeout="10ms")
    for call in (job.state, job.info, job.cancel, job.position):
        with pytest.raises(StoreUnavailable, match=r"waits in the spool .*jobs\.spool"):
            call()
    monkeypatch.setattr("daybreak.api.spooled_submits.SAY_AFTER", timedelta())
    with pytest.raises(ResultTimeout):
        job.result(timeout="100ms")
    assert "waits in the spool" in capsys.readouterr().err


def test_what_the_store_refuses_is_set_aside_and_shown(app, wire, direct, tmp_path, monkeypatch):
    upload = app.find_task("upload")
    first = upload.using(key="k").submit(1)
    direct.queue("small").set(capacity=0)
    wire.down.set()
    conflict, same = upload.using(key="k").submit(2), upload.using(key="k").submit(1)
    full = upload.using(queue="small").submit(3)
    wire.down.clear()
    drained(app)
    with pytest.raises(Refused, match="KeyConflict"):
        conflict.state()
    with pytest.raises(Refused, match="QueueFull"):
        full.result()
    assert same.state() is State.QUEUED
    assert same.id == first.id
    monkeypatch.setenv("DAYBREAK_SPOOL", str(tmp_path / "jobs.spool"))
    shown = CliRunner().invoke(root, ["spool", "--url", wire.url, "--json"], catch_exceptions=False)
    refused = {each["id"]: each["reason"] for each in json.loads(shown.output)["set_aside"]}
    assert refused.keys() == {conflict.id, full.id}
    direct.queue("small").set(capacity=10)
    run = lambda *words: CliRunner().invoke(root, ["spool", "--url", wire.url, *words], catch_exceptions=False)  # noqa: E731
    assert run("--retry", full.id, "--flush").exit_code == 0
    assert full.state() is State.QUEUED
    assert "Set aside" in run().output
    assert "No job is waiting" in run("--drop", conflict.id).output
    assert "Set aside" not in run().output


def test_commands_show_the_spool_while_the_store_is_away(app, wire, tmp_path, monkeypatch):
    wire.down.set()
    app.find_task("upload").submit(1)
    app.close()
    monkeypatch.setenv("DAYBREAK_SPOOL", str(tmp_path / "jobs.spool"))
    monkeypatch.setenv("DAYBREAK_URL", wire.url)
    status = CliRunner().invoke(root, ["spool", "--json"])
    assert (status.exit_code, json.loads(status.output)["waiting"]) == (0, 1)
    assert "1 job waiting, the oldest submitted" in CliRunner().invoke(root, ["spool"]).output
    assert CliRunner().invoke(root, ["spool", "--flush"]).exit_code == 3
    wire.down.clear()
    doctor = CliRunner().invoke(root, ["doctor"])
    assert doctor.exit_code == 1
    assert "1 job in the spool" in " ".join(doctor.output.split())
    assert "1 job forwarded." in CliRunner().invoke(root, ["spool", "--flush"]).output
    assert "no job waits in the spool" in " ".join(CliRunner().invoke(root, ["doctor"]).output.split())


def test_what_one_process_leaves_the_next_one_forwards(app, wire, direct, tmp_path):
    wire.down.set()
    app.find_task("upload").submit(7)
    app.close()
    wire.down.clear()
    with station(wire, tmp_path) as second:
        second.count()
        drained(second)
    assert serials(direct) == [7]


def test_a_worker_forwards_what_it_finds(app, wire, direct, tmp_path):
    wire.down.set()
    job = app.find_task("upload").submit(7)
    app.close()  # this process forwards nothing any more
    wire.down.clear()
    with station(wire, tmp_path) as other, other.worker(isolation="thread"):
        until = time.monotonic() + 120
        while not direct.count(state="completed"):
            assert time.monotonic() < until
            time.sleep(0.05)
    assert direct.job(job.id).result() == 7


def test_resources_of_spooled_jobs_are_declared_to_the_store(app, wire, direct):
    wire.down.set()
    app.find_task("upload").using(resource=Resource("licence", slots=2)).submit(1)
    wire.down.clear()
    drained(app)
    assert direct.resource("licence").info().slots == 2


def test_threads_that_submit_at_once_share_commits(app, wire, direct):
    upload = app.find_task("upload")
    wire.down.set()
    upload.submit(0)
    threads = [threading.Thread(target=upload.submit, args=(n,)) for n in range(1, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert app.spool_status().waiting == 30
    wire.down.clear()
    drained(app)
    assert sorted(serials(direct)) == list(range(30))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_uses_the_spool_of_its_parent(app, wire, direct):
    upload = app.find_task("upload")
    wire.down.set()
    upload.submit(0)
    child = os.fork()
    if child == 0:
        try:
            upload.submit(1)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - reported by the exit code
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    upload.submit(2)
    wire.down.clear()
    drained(app)
    assert serials(direct) == [0, 1, 2]


def test_a_memory_store_needs_no_spool(tmp_path):
    with pytest.raises(BadInput, match="leave spool out"), Daybreak("memory://", spool=tmp_path / "s") as app:
        app.count()
    with pytest.raises(BadInput, match="has no spool"), Daybreak("memory://") as app:
        app.spool_status()

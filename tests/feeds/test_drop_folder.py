"""A drop folder: which files become jobs, in which order, and where they go."""

from __future__ import annotations

import asyncio
import json
import os

import pytest
from drop_rig import digest

from daybreak.core.errors import BadInput
from daybreak.core.model import State
from daybreak.feeds.drop_folder.watch_record import read_statuses, set_paused
from daybreak.testing.contract.builders import amend, run_one


async def test_a_file_becomes_a_job_with_its_content_and_moves_when_it_ends(rig):
    rig.drop("a.json", "hello")
    watcher = await rig.start()
    await rig.steps(watcher)
    [job] = await rig.jobs()
    assert digest("hello").encode() in job.spec.args
    assert job.spec.queue == "upload"
    assert rig.files() == ["a.json"]
    await rig.run_jobs()
    await rig.steps(watcher, 1)
    assert rig.files() == ["done/a.json"]
    assert (rig.folder / "done/a.json").read_text() == "hello"
    assert watcher.is_idle


async def test_a_file_whose_result_is_known_moves_at_once_and_counts_as_submitted(make_rig):
    rig = await make_rig(cache=True)
    heard: list[str] = []
    rig.app.on("submitted", "completed")(lambda event: heard.append(event.kind))
    rig.drop("a.json", "hello")
    watcher = await rig.start()
    await rig.handle_all(watcher)
    rig.drop("b.json", "hello")
    await rig.steps(watcher, 2)
    assert rig.files() == ["done/a.json", "done/b.json"]
    await rig.steps(watcher, 5)
    [status] = await read_statuses(rig.client)
    assert (status.submitted, status.done) == (2, 2)
    rig.app.hooks.flush()
    assert heard == ["submitted", "submitted", "completed"]  # the rig completes the first


async def test_a_file_whose_job_failed_moves_with_a_note(rig):
    rig.drop("bad.json", "x", metadata={"station": 7})
    await rig.handle_all(await rig.start())
    assert rig.files() == ["failed/bad.json", "failed/bad.json.error.json", "failed/bad.json.meta.json"]
    note = rig.note("failed/bad.json.error.json")
    [job] = await rig.jobs()
    assert (note["job"], note["error"], note["attempts"]) == (job.id, "ValueError: bad report", 1)
    assert job.spec.meta["station"] == "7"


async def test_a_file_is_deleted_if_asked(make_rig):
    rig = await make_rig(delete=True)
    rig.drop("a.json", priority=1)
    rig.drop("bad.json")
    await rig.handle_all(await rig.start())
    assert rig.files() == ["failed/bad.json", "failed/bad.json.error.json"]


async def test_destinations_may_be_elsewhere(make_rig, tmp_path):
    rig = await make_rig(done=tmp_path / "archive" / "2026")
    rig.drop("a.json")
    await rig.handle_all(await rig.start())
    assert rig.files() == []
    assert (tmp_path / "archive/2026/a.json").exists()


async def test_a_file_that_grows_is_waited_for(rig):
    path = rig.drop("a.json", "half")
    watcher = await rig.start()
    await watcher.step()
    rig.clock.advance("3s")
    path.write_text("half and half")
    await watcher.step()
    assert await rig.jobs() == []
    rig.clock.advance("3s")
    await watcher.step()
    [job] = await rig.jobs()
    assert digest("half and half").encode() in job.spec.args


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW") or os.uname().sysname != "Linux", reason="only Linux can tell")
async def test_a_file_that_is_open_for_writing_is_waited_for(rig):
    watcher = await rig.start()
    with (rig.folder / "a.json").open("w") as file:
        file.write("half")
        file.flush()
        await rig.steps(watcher, 5)
        assert await rig.jobs() == []
        file.write(" and half")
    await rig.steps(watcher)
    [job] = await rig.jobs()
    assert digest("half and half").encode() in job.spec.args


async def test_with_a_done_marker_a_file_waits_for_it(make_rig):
    rig = await make_rig(done_marker=True)
    rig.drop("a.json")
    watcher = await rig.start()
    await rig.steps(watcher, 5)
    assert await rig.jobs() == []
    rig.drop("a.json.done")
    await rig.handle_all(watcher)
    assert await rig.names(State.COMPLETED) == ["a.json"]
    assert rig.files() == ["done/a.json"]


async def test_priority_is_that_of_the_sidecar_then_the_name_then_the_folder_then_the_watch(make_rig):
    rig = await make_rig(priority="low")
    rig.drop("1/beside.p2.json", priority="emergency")
    rig.drop("1/named.p2.json")
    rig.drop("1/placed.json")
    rig.drop("critical/also.json")
    rig.drop("plain.json")
    rig.drop("p1.json")
    rig.drop("odd.p11.json")
    await rig.steps(await rig.start())
    found = {job.spec.meta["file"]: job.priority for job in await rig.jobs()}
    assert found == {
        "1/beside.p2.json": 0, "1/named.p2.json": 2, "1/placed.json": 1, "critical/also.json": 1, "plain.json": 7,
        "p1.json": 7, "odd.p11.json": 7,
    }  # fmt: skip


async def test_an_urgent_file_overtakes_the_backlog(make_rig):
    rig = await make_rig(max_running=None)
    for number in range(100):
        rig.drop(f"plain{number:03}.json")
    watcher = await rig.start()
    await rig.steps(watcher)
    rig.drop("late.p1.json")
    rig.drop("later.json", priority=0)
    await rig.steps(watcher)
    assert (await rig.run_jobs(3))[:2] == ["later.json", "late.p1.json"]


async def test_of_many_ready_files_the_urgent_ones_are_submitted_first(rig):
    for number in range(200):
        rig.drop(f"plain{number:03}.json")
    rig.drop("urgent.p0.json")
    rig.drop("beside.json", priority=1)
    await rig.steps(await rig.start())
    in_order = sorted(await rig.jobs(), key=lambda job: job.seq)
    assert [job.spec.meta["file"] for job in in_order[:2]] == ["urgent.p0.json", "beside.json"]
    assert len(in_order) == 202


async def test_the_same_file_again_goes_to_done_with_a_note(rig):
    watcher = await rig.start()
    for _ in range(2):
        rig.drop("a.json", "same")
        await rig.handle_all(watcher)
    [job] = await rig.jobs()
    second = f"done/a.{job.id[-8:]}.json"
    note = f"{second}.note.json"
    assert rig.files() == [second, note, "done/a.json"]
    assert rig.note(note)["note"] == "the same file was handled before"
    assert rig.note(note)["job"] == job.id


async def test_the_same_name_with_other_content_is_a_new_job(rig):
    watcher = await rig.start()
    for content in ("one", "two"):
        rig.drop("a.json", content)
        await rig.handle_all(watcher)
    assert len(await rig.jobs()) == 2
    assert sorted((rig.folder / name).read_text() for name in rig.files()) == ["one", "two"]


async def test_a_file_that_is_overwritten_while_its_job_waits_is_a_new_job(rig):
    watcher = await rig.start()
    rig.drop("a.json", "one")
    await rig.steps(watcher)
    rig.drop("a.json", "two")
    await rig.run_jobs()
    await rig.handle_all(watcher)
    assert await rig.names(State.COMPLETED) == ["a.json", "a.json"]
    assert rig.files() == ["done/a.json"]
    assert (rig.folder / "done/a.json").read_text() == "two"


async def test_a_failed_file_that_is_dropped_again_runs_again_and_once_done_never_more(rig):
    watcher = await rig.start()
    path = rig.drop("bad.json", "same")
    await rig.handle_all(watcher)
    for expected in (2, 3):
        (rig.folder / "failed/bad.json").rename(path)
        await rig.handle_all(watcher)
        assert len(await rig.jobs()) == expected
    [last, *_] = await rig.jobs()
    await amend(rig.store, "retry", last.id, now=None)
    assert await run_one(rig.store, queues=("upload",), now=None) == last.id
    (rig.folder / "failed/bad.json").rename(path)
    await rig.handle_all(watcher)
    assert len(await rig.jobs()) == 3
    assert "done/bad.json" in rig.files()


async def test_a_full_queue_leaves_files_in_the_folder_and_says_it_once(make_rig, caplog):
    rig = await make_rig(capacity=10)
    for number in range(25):
        rig.drop(f"{number:02}.json")
    watcher = await rig.start()
    await rig.steps(watcher, 6)
    assert len(await rig.jobs()) == 10
    assert watcher.status().state == "full"
    assert sum("is full" in record.message for record in caplog.records) == 1
    for _ in range(12):
        await rig.run_jobs()
        await rig.steps(watcher)
    assert len(await rig.jobs()) == 25
    assert len(rig.files()) == 25
    assert all(name.startswith("done/") for name in rig.files())
    assert watcher.status().state == "running"


async def test_a_queue_that_a_person_has_set_keeps_its_settings(rig):
    await rig.client.set_queue("upload", max_running=1)
    await rig.start()
    assert (await rig.client.queue("upload")).max_running == 1


async def test_the_queue_starts_with_five_at_once_and_ten_thousand_waiting(rig):
    await rig.start()
    settings = await rig.client.queue("upload")
    assert (settings.max_running, settings.capacity) == (5, 10_000)


async def test_jobs_are_retried_as_uploads_unless_the_task_says_otherwise(rig):
    rig.drop("a.json")
    await rig.steps(await rig.start())
    [job] = await rig.jobs()
    retry = job.spec.options.retry
    assert (retry.attempts, retry.delay.total_seconds(), retry.factor) == (5, 300, 2)


async def test_leftovers_of_the_old_format_are_taken_over(rig):
    for name in ("one.queued", "two.processing", "three.error", "four.completed"):
        rig.drop(name)
    rig.drop("three.error.info", json.dumps({"error": "no net", "timestamp": "2026-01-01", "attempts": 3}))
    await rig.handle_all(await rig.start())
    jobs = {job.spec.meta["file"]: job for job in await rig.jobs()}
    assert set(jobs) == {"one.queued", "two.processing", "three.error"}
    assert jobs["three.error"].spec.options.retry.attempts == 2
    assert jobs["three.error"].spec.meta["earlier_error"] == "no net"
    assert rig.files() == [
        "done/four", "done/four.note.json", "done/one", "done/three", "done/three.error.info", "done/two",
    ]  # fmt: skip


async def test_a_wrong_sidecar_refuses_its_file_with_a_reason(rig):
    rig.drop("a.json", priority=99)
    rig.drop("b.json")
    (rig.folder / "b.json.meta.json").write_text("{")
    await rig.handle_all(await rig.start())
    assert await rig.jobs() == []
    assert "99 is not a priority" in rig.note("failed/a.json.error.json")["error"]
    assert "is not JSON" in rig.note("failed/b.json.error.json")["error"]


async def test_names_that_are_not_for_this_watch_are_ignored(make_rig, caplog):
    rig = await make_rig(pattern="*.json")
    for name in ("a.csv", ".hidden.json", "b.json.tmp", "c.json.meta.json", "d.json"):
        rig.drop(name)
    await rig.handle_all(await rig.start())
    assert await rig.names() == ["d.json"]
    assert not caplog.records


async def test_two_watchers_of_one_folder_make_one_job_per_file(rig):
    for number in range(150):
        rig.drop(f"{number:03}.json")
    first, second = await rig.start(), await rig.start()
    for _ in range(4):
        await asyncio.gather(first.step(), second.step())
        rig.clock.advance("3s")
    assert len(await rig.jobs()) == 150
    while await rig.run_jobs():
        pass
    for _ in range(3):
        await asyncio.gather(first.step(), second.step())
        rig.clock.advance("3s")
    assert rig.files() == [f"done/{number:03}.json" for number in range(150)]


async def test_a_paused_watch_takes_nothing_until_it_is_resumed(rig):
    await set_paused(rig.client, "drop", paused=True)
    rig.drop("a.json")
    watcher = await rig.start()
    await rig.steps(watcher, 5)
    assert await rig.jobs() == []
    [status] = await read_statuses(rig.client)
    assert (status.state, status.submitted) == ("paused", 0)
    await set_paused(rig.client, "drop", paused=False)
    await rig.steps(watcher, 5)
    assert await rig.names() == ["a.json"]


async def test_the_status_counts_what_there_is(rig):
    watcher = await rig.start()
    for name in ("a.json", "bad.json"):
        rig.drop(name)
    (rig.folder / "link").symlink_to("/etc/passwd")
    await rig.handle_all(watcher)
    rig.drop("new.json")
    await rig.steps(watcher, 5)
    [status] = await read_statuses(rig.client)
    assert (status.submitted, status.done, status.failed, status.accepted, status.left_alone) == (3, 1, 1, 1, 1)
    assert status.reported == (("link", "it is a symbolic link"),)


async def test_a_removed_job_lets_its_file_start_anew(rig):
    watcher = await rig.start()
    rig.drop("a.json")
    await rig.steps(watcher)
    [job] = await rig.jobs()
    await rig.client.cancel(job.id)
    await rig.client.remove(job.id)
    await rig.steps(watcher, 5)
    [new] = await rig.jobs()
    assert new.id != job.id


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"settle": 5}, "no unit"), ({"done": "../x"}, "one name"), ({"pattern": "a/b"}, "pattern"),
        ({"done_marker": "done"}, "suffix"), ({"max_running": 0}, "max_running"), ({"priority": 12}, "priority"),
        ({"name": "a\nb"}, "control character"), ({"max_size": "big"}, "size"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(rig, options, message):
    with pytest.raises(BadInput, match=message):
        rig.app.watch(rig.path / "other", "upload", **options)


def test_a_task_without_a_parameter_and_a_second_watch_of_a_name_are_refused(rig):
    @rig.app.task
    def nothing() -> None: ...

    with pytest.raises(BadInput, match="takes no argument"):
        rig.app.watch(rig.path / "other", nothing)
    with pytest.raises(BadInput, match="two watches"):
        rig.app.watch(rig.path / "x" / "drop", "upload")

"""`daybreak move` with folders: those of the directory store, and those of the original pyWATS queue."""

from __future__ import annotations

import itertools
import json

import pytest

STATUSES = ("pending", "processing", "failed", "completed", "suspended")


@pytest.fixture
def old_queue(tmp_path):
    """A folder as the original queue of pyWATS leaves it."""
    folder = tmp_path / "queue"
    folder.mkdir()
    for number, status in enumerate(STATUSES):
        (folder / f"r{number}.{status}.wsjf").write_text(json.dumps({"serial": number}))
        meta = {
            "id": f"r{number}",
            "priority": 2,
            "status": status,
            "attempts": 1,
            "created_at": f"2026-01-0{number + 1}",
        }
        (folder / f"r{number}.{status}.meta.json").write_text(json.dumps(meta))
    return folder


def found(ask, url):
    jobs = ask("jobs", "--url", url, "--json")["jobs"]
    return {job["id"]: (job["state"], job["attempt"], job["args"]["data"]["serial"]) for job in jobs}


EXPECTED = {
    "r0": ("queued", 1, 0),
    "r1": ("queued", 2, 1),
    "r2": ("failed", 1, 2),
    "r3": ("completed", 1, 3),
    "r4": ("suspended", 1, 4),
}


def test_a_folder_of_the_original_queue_is_moved_into_any_store(cli, ask, old_queue, tmp_path):
    source, target = f"dir://{old_queue}?queue=reports", str(tmp_path / "jobs.db")
    assert cli("move", "--url", source, "--to", target).stdout.startswith("5 jobs moved to ")
    assert found(ask, target) == EXPECTED
    assert [path.name for path in old_queue.iterdir()] == [".daybreak"], "nothing is left to be uploaded twice"
    assert cli("move", "--url", source, "--to", target).stdout.startswith("0 jobs moved to ")
    assert found(ask, target) == EXPECTED


def test_an_item_that_was_moved_before_is_not_moved_twice(cli, ask, old_queue, tmp_path):
    source, target = f"dir://{old_queue}", str(tmp_path / "jobs.db")
    kept = {path.name: path.read_bytes() for path in old_queue.iterdir()}
    cli("move", "--url", source, "--to", target)
    for name, content in kept.items():  # as if the move had been killed before it deleted them
        (old_queue / name).write_bytes(content)
    assert "5 jobs were in the new store already" in cli("move", "--url", source, "--to", target).stdout
    assert found(ask, target) == EXPECTED


def test_a_damaged_item_stays_behind_and_is_named(cli, ask, old_queue, tmp_path, caplog):
    (old_queue / "r0.pending.wsjf").write_text('{"serial": ')
    cli("move", "--url", f"dir://{old_queue}", "--to", str(tmp_path / "jobs.db"))
    assert found(ask, str(tmp_path / "jobs.db")).keys() == EXPECTED.keys() - {"r0"}
    assert "r0.pending.wsjf" in caplog.text
    assert (old_queue / "corrupt" / "r0.pending.wsjf").exists()
    assert "r0.pending.wsjf" in cli("doctor", "--url", f"dir://{old_queue}", code=1).stdout


def test_jobs_move_through_folders_of_both_layouts_and_back(cli, ask, old_queue, tmp_path):
    places = [f"dir://{old_queue}", str(tmp_path / "a.db"), f"dir://{tmp_path}/b", f"dir://{tmp_path}/c?layout=wats"]
    for source, target in itertools.pairwise(places):
        assert cli("move", "--url", source, "--to", target).stdout.startswith("5 jobs moved to ")
        assert found(ask, target) == EXPECTED
    assert (tmp_path / "c" / "r0.pending.wsjf").read_text() == '{"serial": 0}'


def test_a_folder_is_not_moved_into_itself(cli, old_queue):
    told = cli("move", "--url", f"dir://{old_queue}", "--to", f"dir://{old_queue}?layout=wats", code=2).stderr
    assert "source and target are the same store under two names" in told


def test_a_folder_has_no_backup_command(cli, old_queue, tmp_path):
    told = cli("backup", "--url", f"dir://{old_queue}", str(tmp_path / "copy.db"), code=2).stderr
    assert "is a folder: stop its process, then copy it with cp -a" in told

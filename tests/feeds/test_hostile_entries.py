"""Hostile entries among good files: the good ones run, the others are reported once and left alone, and nothing outside
the folder is touched."""

from __future__ import annotations

import os
import threading
import time

import pytest
from drop_rig import digest
from hostile import BIG, make_hostile

from daybreak.core.model import State
from daybreak.feeds.drop_folder.folder_handle import FolderHandle

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such entries")
GOOD = 1000


def tree(folder) -> dict[bytes, tuple[int, ...]]:
    """Everything below a folder, with what would change if anybody wrote or read it."""
    found = {}
    for parent, folders, files in os.walk(os.fsencode(folder)):
        for name in [*folders, *files]:
            status = os.lstat(os.path.join(parent, name))
            found[os.path.join(parent, name)] = (
                status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns,
            )  # fmt: skip
    return found


async def test_exactly_the_good_files_run(make_rig, tmp_path, caplog):
    rig = await make_rig(max_size=BIG - 1, max_running=None)
    outside = tmp_path / "outside"
    outside.mkdir()
    hostile = make_hostile(rig.folder, outside)
    before = tree(rig.folder)
    there = tree(outside)
    for number in range(GOOD):
        rig.drop(f"good{number:04}.json", f"content {number}")
    watcher = await rig.start()
    await rig.steps(watcher, 4)
    assert await rig.names() == [f"good{number:04}.json" for number in range(GOOD)]
    contents = [job.spec.args for job in sorted(await rig.jobs(), key=lambda job: job.spec.meta["file"])]
    assert all(digest(f"content {number}").encode() in args for number, args in enumerate(contents))
    await rig.run_jobs()
    await rig.steps(watcher, 4)
    assert await rig.names(State.COMPLETED) == [f"good{number:04}.json" for number in range(GOOD)]
    assert sorted(os.listdir(rig.folder / "done")) == [f"good{number:04}.json" for number in range(GOOD)]
    after = tree(rig.folder)
    assert {path: after[path] for path in before} == before
    assert tree(outside) == there
    said = [record.message for record in caplog.records if "left alone" in record.message]
    assert len(said) == len(set(said)) == len(hostile)
    assert not any(char in line for line in said for char in "\n\x1b\x07\u202e")


async def test_hostile_entries_never_block_the_scan(make_rig, tmp_path):
    rig = await make_rig(max_size=BIG - 1)
    outside = tmp_path / "outside"
    outside.mkdir()
    make_hostile(rig.folder, outside)
    done = threading.Event()

    def unblock() -> None:
        """Who opens a pipe for reading waits for a writer: let the test fail instead of hang."""
        if not done.wait(60):
            os.close(os.open(rig.folder / "fifo.json", os.O_RDWR | os.O_NONBLOCK))

    helper = threading.Thread(target=unblock)
    helper.start()
    began = time.monotonic()
    try:
        await rig.steps(await rig.start(), 3)
    finally:
        took = time.monotonic() - began
        done.set()
        helper.join()
    assert took < 60


SWAPS = {
    "link": lambda path, outside: (path.unlink(), path.symlink_to(outside / "secret.json")),
    "fifo": lambda path, _: (path.unlink(), os.mkfifo(path)),
    "folder": lambda path, _: (path.unlink(), path.mkdir()),
    "other file": lambda path, outside: os.replace(outside / "other.json", path),
    "gone": lambda path, _: path.unlink(),
}


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize("when", ["open_file", "move"])
async def test_what_is_swapped_in_at_the_last_instant_is_noticed(rig, tmp_path, monkeypatch, swap, when):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.json").write_text("nobody may read this")
    (outside / "other.json").write_text("another report")
    path = rig.drop("a.json", "original")
    plain = getattr(FolderHandle, when)
    swapped = []

    def swap_first(self, name, *args):
        if name == "a.json" and not swapped and self.path == rig.folder:
            swapped.append(SWAPS[swap](path, outside))
        return plain(self, name, *args)

    monkeypatch.setattr(FolderHandle, when, swap_first)
    watcher = await rig.start()
    await rig.handle_all(watcher)
    assert swapped
    await rig.handle_all(watcher)
    await rig.handle_all(watcher)
    assert (outside / "secret.json").read_text() == "nobody may read this"
    for job in await rig.jobs():
        assert digest("nobody may read this").encode() not in job.spec.args
    if swap == "other file":
        assert digest("another report").encode() in (await rig.jobs())[0].spec.args
        assert (rig.folder / "done/a.json").read_text() == "another report"
    elif swap != "gone":
        assert os.path.lexists(path)
        assert not path.is_file() or path.is_symlink()
    assert len(await rig.jobs()) == (when == "move") + (swap == "other file")


@pytest.mark.parametrize("place", ["done", "failed", ".daybreak"])
async def test_a_destination_that_is_a_link_is_not_followed(rig, tmp_path, place, caplog):
    outside = tmp_path / "outside"
    outside.mkdir()
    (rig.folder / place).symlink_to(outside)
    rig.drop("bad.json" if place == "failed" else "a.json")
    await rig.handle_all(await rig.start())
    assert os.listdir(outside) == []
    assert len(await rig.jobs()) == 1
    assert "cannot be moved" in caplog.text


async def test_a_sidecar_that_is_a_link_is_not_read(rig, tmp_path, caplog):
    (tmp_path / "secret.json").write_text('{"priority": 0}')
    (rig.folder / "a.json.meta.json").symlink_to(tmp_path / "secret.json")
    rig.drop("a.json")
    await rig.steps(await rig.start())
    assert await rig.jobs() == []
    assert "its sidecar a.json.meta.json cannot be read" in caplog.text

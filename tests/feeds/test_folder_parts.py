"""The parts of a drop folder: handles that follow no link, names, settling, wake-ups, and the lock."""

from __future__ import annotations

import asyncio
import logging
import os
import threading

import pytest

from daybreak.feeds.drop_folder import arrivals as arrivals_module
from daybreak.feeds.drop_folder.arrivals import Arrivals, is_remote
from daybreak.feeds.drop_folder.entry import Fingerprint
from daybreak.feeds.drop_folder.entry_name import folder_priority, name_problem, parse_name, priority_in_name
from daybreak.feeds.drop_folder.folder_handle import FolderHandle
from daybreak.feeds.drop_folder.settle_check import SettleCheck
from daybreak.feeds.drop_folder.watch_lock import watch_lock
from daybreak.system.ports import RealWorld

posix = pytest.mark.skipif(os.name == "nt", reason="links and pipes of POSIX")


# -- handles -----------------------------------------------------------------------------------------------------------


@posix
def test_a_link_is_never_opened_neither_to_a_file_nor_to_a_folder(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "secret").write_text("x")
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path / "outside")
    with FolderHandle.open(root) as folder:
        with pytest.raises(OSError, match="symbolic links"):
            folder.open_file("file")
        with pytest.raises(NotADirectoryError):
            folder.open_folder("folder", create=True)


@posix
def test_a_pipe_without_a_writer_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    opened = []

    def open_pipe() -> None:
        with FolderHandle.open(tmp_path) as folder:
            opened.append(folder.open_file("pipe"))

    thread = threading.Thread(target=open_pipe, daemon=True)
    thread.start()
    thread.join(60)
    assert opened
    os.close(opened[0])


@pytest.mark.parametrize("has_exclusive_rename", [True, False])
def test_a_move_replaces_nothing(tmp_path, monkeypatch, has_exclusive_rename):
    if not has_exclusive_rename:
        monkeypatch.setattr("daybreak.feeds.drop_folder.folder_handle._renameat2", None)
    (tmp_path / "to").mkdir()
    (tmp_path / "a").write_text("a")
    (tmp_path / "to" / "taken").write_text("b")
    with FolderHandle.open(tmp_path) as folder, folder.open_folder("to") as to:
        with pytest.raises(FileExistsError):
            folder.move("a", to, "taken")
        folder.move("a", to, "free")
    assert sorted((path.name, path.read_text()) for path in (tmp_path / "to").iterdir()) == [
        ("free", "a"), ("taken", "b"),
    ]  # fmt: skip
    assert not (tmp_path / "a").exists()


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "title", "leftover"),
    [
        ("a.json", "a.json", ""), ("a.queued", "a", "queued"), ("a.json.processing", "a.json", "processing"),
        (".hidden", None, None), ("a.json.meta.json", None, None), ("a.error.info", None, None), ("a.tmp", None, None),
        ("a.done", None, None), (".queued", None, None),
    ],
)  # fmt: skip
def test_a_name_says_what_an_entry_is(name, title, leftover):
    found = parse_name("", name, "*", ".done")
    assert (found and found.title, found and found.leftover) == (title, leftover)


def test_priorities_in_names():
    names = {"r.p1.json": 1, "r.P10.json": 10, "r.p0": 0, "r.p11.json": None, "p1.json": None, "r.p1.x.json": None}
    assert {name: priority_in_name(name) for name in names} == names
    folders = {"1": 1, "10": 10, "critical": 1, "HIGH": 2, "11": None, "other": None, "01x": None, "٣": None}
    assert {name: folder_priority(name) for name in folders} == folders


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[0m", "a\udcff", "..", ".", "", "a/b", "a\u202eb", "a\u2028b"])
def test_a_name_that_could_deceive_is_refused(name):
    assert name_problem(name)
    assert not name_problem("Prüfbericht 7 (neu).json")


# -- settling ----------------------------------------------------------------------------------------------------------


def test_a_file_settles_when_nothing_changed_for_the_time():
    check = SettleCheck(500)
    first, second = Fingerprint(1, 2, 10, 7, 7), Fingerprint(1, 2, 20, 8, 8)
    assert not check.see("a", first, 0)
    assert not check.see("a", first, 499)
    assert not check.see("a", second, 499)
    assert check.due(998) == []
    assert check.due(999) == ["a"]
    assert check.see("a", second, 999)
    check.forget("a")
    assert len(check) == 0


# -- wake-ups ----------------------------------------------------------------------------------------------------------


async def test_a_folder_is_polled_if_nobody_tells_and_that_is_said_once(tmp_path, monkeypatch, caplog):
    async def refuse(*_, **__):
        raise OSError(24, "Too many open files")
        yield

    monkeypatch.setattr(arrivals_module, "awatch", refuse)
    monkeypatch.setattr(arrivals_module, "TRY_AGAIN_EVERY", arrivals_module.TRY_AGAIN_EVERY * 0)
    caplog.set_level(logging.INFO)
    woken = asyncio.Semaphore(0)
    arrivals = Arrivals(tmp_path, None, woken.release, RealWorld())
    task = asyncio.create_task(arrivals.run())
    for _ in range(3):
        await asyncio.wait_for(woken.acquire(), 60)
    task.cancel()
    assert arrivals.is_polling
    assert [record.message.count("is polled: [Errno 24]") for record in caplog.records] == [1]


async def test_changes_are_told_also_in_priority_folders_that_come_later(tmp_path):
    woken = asyncio.Event()
    arrivals = Arrivals(tmp_path, ".done", woken.set, RealWorld())
    task = asyncio.create_task(arrivals.run())
    await asyncio.wait_for(woken.wait(), 60)
    assert arrivals.take() is None  # what came before is found by a scan
    seen: set[str] = set()
    (tmp_path / "a.json").touch()
    (tmp_path / "b.json.meta.json").touch()
    (tmp_path / "c.json.done").touch()
    (tmp_path / "1").mkdir()
    async with asyncio.timeout(60):
        while not seen >= {"a.json", "b.json", "c.json", "1"}:
            woken.clear()
            seen |= arrivals.take() or set()  # a wake-up after this one is not lost: the event was cleared before
            if not seen >= {"a.json", "b.json", "c.json", "1"}:
                await woken.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_network_mounts_are_found(monkeypatch, tmp_path):
    table = "1 0 0:1 / / rw - ext4 /dev/sda rw\n2 1 0:2 / /mnt/share rw - cifs //host/share rw\n"
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_, **__: table)
    assert is_remote(arrivals_module.Path("/mnt/share/reports"))
    assert not is_remote(arrivals_module.Path("/mnt/shared"))


# -- the lock ----------------------------------------------------------------------------------------------------------


@posix
def test_one_watcher_of_a_folder_is_active(tmp_path):
    with watch_lock(tmp_path, "a") as first, watch_lock(tmp_path, "a") as second, watch_lock(tmp_path, "b") as other:
        assert (first, second, other) == (True, False, True)
    with watch_lock(tmp_path, "a") as again:
        assert again


@posix
def test_a_lock_that_is_a_link_locks_nothing_elsewhere(tmp_path):
    with watch_lock(tmp_path, "a"):
        [lock] = tmp_path.glob(".daybreak-*.lock")
    lock.unlink()
    lock.symlink_to(tmp_path / "made")
    with watch_lock(tmp_path, "a") as is_active:
        assert is_active
    assert not (tmp_path / "made").exists()

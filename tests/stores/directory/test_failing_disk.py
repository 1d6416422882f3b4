"""The n-th step on the disk fails, for every n of every transition. Either all of an operation happened or nothing."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import tempfile
from pathlib import Path

import pytest
from faulty_disks import ErrorDisk, Killed, KilledDisk, PowerCutDisk, copied
from transitions import Story, shown

from daybreak.core.errors import OutcomeUnknown, StoreError, StoreFull
from daybreak.core.model import Put
from daybreak.stores.directory import DirectoryStore, persistence
from daybreak.stores.directory.open_folder import forget

WITH_CHECKPOINTS = ("insert", "claim", "beat", "complete", "remove")  # a checkpoint has many steps: not for all
IN_MEMORY = "/dev/shm"  # noqa: S108 - a directory of its own is made in it


@pytest.fixture
def place(tmp_path):
    """A folder in memory if possible: hundreds of stores are opened in it."""
    if not os.access(IN_MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="daybreak-") as path:
        yield Path(path)


def die(store: DirectoryStore) -> None:
    """What the death of the process does to its store."""
    folder = store._folder
    if folder is not None:
        forget(folder)
        folder.abandon()


def checkpoint_always(monkeypatch) -> None:
    """A checkpoint after every operation, not once in a few megabytes."""
    monkeypatch.setattr(persistence, "CHECKPOINT_BYTES", 0)
    monkeypatch.setattr(persistence, "JOURNAL_PER_STATE", 0)
    monkeypatch.setattr(persistence, "LATEST_FILES", 0)


async def read(folder: Path):
    async with DirectoryStore(folder) as store:
        return await shown(store)


async def before_and_after(place: Path, *, unclean: bool = False, only: tuple[str, ...] = ()):
    """Each operation, with the folder before it and what the store shows before and after it. `unclean`: the process
    dies after each operation, so that its change is only in the journal. `only` selects operations."""
    story, folder = Story(), place / "story"
    for number, step in enumerate(story.steps()):
        start = copied(folder, place / f"before-{number}") if number else place / "before-0"
        start.mkdir(exist_ok=True)
        before = await read(copied(start, place / "read"))
        store = await DirectoryStore(folder).open()
        await step(store)
        after = await shown(store)
        if unclean:
            die(store)
        else:
            await store.close()
        assert await read(copied(folder, place / "read")) == after, f"{step.__name__}: a restart changes nothing"
        if not only or step.__name__ in only:
            yield step, start, before, after


async def play_kills(place: Path, make_disk, *, unclean: bool, only: tuple[str, ...] = ()) -> list[str]:
    """Play every operation, once for each of its steps. Returns the steps at which it was killed."""
    trials: list[str] = []
    async for step, start, before, after in before_and_after(place, unclean=unclean, only=only):
        for fail_at in itertools.count(1):
            folder = copied(start, place / "trial")
            store = DirectoryStore(folder, disk=(disk := make_disk(folder)))
            await store.open()
            disk.arm(fail_at)
            answered = False
            with contextlib.suppress(Killed):
                await step(store)
                answered = True
            die(store)
            if isinstance(disk, PowerCutDisk):
                disk.cut()
            # The holder of a lease does not survive a power cut, so plain heartbeats need not either.
            must_hold = answered and not (isinstance(disk, PowerCutDisk) and step.__name__ == "beat")
            found = await read(folder)
            said = f"{step.__name__}, killed at step {fail_at} ({disk.failed})"
            assert found == after or (not must_hold and found == before), said
            if answered:
                break
            trials.append(disk.failed)
    return trials


async def test_a_kill_at_any_step_leaves_all_of_an_operation_or_nothing(place):
    trials = await play_kills(place, lambda _: KilledDisk(), unclean=True)
    assert len(trials) > 100
    assert {"open", "write", "sync", "rename", "unlink"} <= set(trials)


async def test_a_power_cut_at_any_step_leaves_all_of_an_operation_or_nothing(place):
    assert len(await play_kills(place, PowerCutDisk, unclean=True)) > 100


async def test_a_power_cut_at_any_step_of_a_checkpoint_leaves_all_of_an_operation_or_nothing(place, monkeypatch):
    checkpoint_always(monkeypatch)
    assert len(await play_kills(place, PowerCutDisk, unclean=False, only=WITH_CHECKPOINTS)) > 100


@pytest.mark.parametrize(
    ("code", "lasting"), [(errno.EIO, False), (errno.ENOSPC, True)], ids=["fails once", "stays full"]
)
async def test_an_error_at_any_step_never_leaves_memory_and_disk_apart(place, code, lasting, monkeypatch):
    if not lasting:
        checkpoint_always(monkeypatch)
    trials = 0
    async for step, start, before, after in before_and_after(place, only=() if lasting else WITH_CHECKPOINTS):
        for fail_at in itertools.count(1):
            folder = copied(start, place / "trial")
            store = DirectoryStore(folder, disk=(disk := ErrorDisk(code, lasting=lasting)))
            await store.open()
            disk.arm(fail_at)
            said = f"{step.__name__}, error at step {fail_at}"
            try:
                await step(store)
                expected = [after]
            except OutcomeUnknown:
                expected = [before, after]
            except StoreFull:
                expected = [before]
            except StoreError:
                expected = [before] if code != errno.ENOSPC else []
            failed = disk.failed
            disk.arm(0)
            in_memory = await shown(store)
            assert in_memory in expected, said
            if expected == [before]:
                await step(store)
                in_memory = await shown(store)
                assert in_memory == after, f"{said}, then repeated"
            await store.put([Put(kind="probe", name="one", value=b"1")])  # the store goes on
            await store.put([Put(kind="probe", name="one", value=None)])
            in_memory = await shown(store)
            await store.close()
            assert await read(folder) == in_memory, said
            if not failed:
                break
            trials += 1
    assert trials > 80


@pytest.mark.parametrize("at", ["open", "close"])
async def test_a_kill_while_the_store_opens_or_closes_changes_nothing(place, at):
    folder, story = place / "story", Story()
    store = await DirectoryStore(folder).open()
    for step in story.steps()[:12]:
        await step(store)
    expected = await shown(store)
    if at == "open":
        die(store)  # the journal holds everything
    else:
        await store.close()
    for fail_at in itertools.count(1):
        trial = copied(folder, place / "trial")
        disk = KilledDisk()
        store = DirectoryStore(trial, disk=disk)
        try:
            if at == "open":
                disk.arm(fail_at)
            await store.open()
            disk.arm(fail_at)
            await store.close()
        except Killed:
            die(store)
        assert await read(trial) == expected, f"{at}, killed at step {fail_at}"
        if not disk.failed:
            break
    assert fail_at > 5

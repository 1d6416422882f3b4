"""A watcher that is killed at any step: the next one ends with one job per file, and every file in its place."""

from __future__ import annotations

import contextlib

import pytest
from drop_rig import DropRig

from daybreak.core.model import State
from daybreak.feeds.drop_folder.folder_handle import FolderHandle

STEPS = ("open_folder", "open_file", "new_file", "unlink", "rmdir", "move", "write")
STORE_STEPS = ("insert", "known_keys", "get", "put")


class Killed(BaseException):
    """The process ends here: nothing below this line runs."""


class Killer:
    """Counts the operations on the folder and on the store, and ends the watcher at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.at = 0
        self._monkeypatch = monkeypatch
        for name in STEPS:
            monkeypatch.setattr(FolderHandle, name, self._counted(getattr(FolderHandle, name)))

    def on_store(self, store) -> None:
        for name in STORE_STEPS:
            self._monkeypatch.setattr(store, name, self._counted_async(getattr(store, name)))

    def _step(self) -> None:
        self.count += 1
        if self.count == self.at:
            raise Killed

    def _counted(self, call):
        def counted(*args, **kwargs):
            self._step()
            return call(*args, **kwargs)

        return counted

    def _counted_async(self, call):
        async def counted(*args, **kwargs):
            self._step()
            return await call(*args, **kwargs)

        return counted


async def story(rig: DropRig, killer: Killer, at: int) -> int:
    """Drop three files, kill the watcher at its n-th operation, and let another one finish. Returns the count."""
    rig.drop("good.json", priority=3)
    rig.drop("bad.json")
    rig.drop("urgent.p1.json")
    rig.drop("old.processing")
    for name in ("good.json", "bad.json", "urgent.p1.json") if rig.watch.done_marker else ():
        rig.drop(f"{name}.done")
    killer.count, killer.at = 0, at
    with contextlib.suppress(Killed):
        watcher = await rig.start()
        await rig.steps(watcher)
        await rig.run_jobs()
        await rig.steps(watcher, 2)
    count, killer.at = killer.count, 0
    await rig.run_jobs()
    watcher = await rig.start()
    await rig.handle_all(watcher)
    await rig.steps(watcher, 3)
    return count


async def check(rig: DropRig) -> None:
    assert await rig.names(State.COMPLETED) == ["good.json", "old.processing", "urgent.p1.json"]
    assert await rig.names() == ["bad.json", "good.json", "old.processing", "urgent.p1.json"]
    found = [name for name in rig.files() if not name.endswith(".note.json") and "/.daybreak-" not in name]
    assert found == [
        "done/good.json", "done/good.json.meta.json", "done/old", "done/urgent.p1.json", "failed/bad.json",
        "failed/bad.json.error.json",
    ]  # fmt: skip
    assert list((rig.folder / ".daybreak").iterdir()) == []


@pytest.mark.parametrize("options", [{}, {"delete": True, "done_marker": True}], ids=["moved", "deleted"])
async def test_a_kill_at_any_operation_leaves_nothing_half(tmp_path, monkeypatch, options):
    killer, at, count = Killer(monkeypatch), 0, 1
    while at <= count:
        async with DropRig(tmp_path / f"kill{at}", **options) as rig:
            killer.on_store(rig.store)
            killed_at = await story(rig, killer, at)
            if at == 0:
                count = killed_at
            if options:
                assert await rig.names() == ["bad.json", "good.json", "old.processing", "urgent.p1.json"]
                assert [name for name in rig.files() if "/.daybreak-" not in name and not name.endswith(".done")] == [
                    "failed/bad.json", "failed/bad.json.error.json",
                ], f"killed at operation {at}"  # fmt: skip
            else:
                await check(rig)
        at += 1 + len(options)  # the two differ in one operation
    assert count > 40

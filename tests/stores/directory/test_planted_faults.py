"""The tests of failing disks find bugs: each row breaks the store in one place, and a test must fail."""

from __future__ import annotations

import errno

import pytest
import test_failing_disk
from faulty_disks import KilledDisk, PowerCutDisk
from test_failing_disk import WITH_CHECKPOINTS, checkpoint_always, place, play_kills

from daybreak.stores.directory.job_files import JobFiles
from daybreak.stores.directory.journal import Journal
from daybreak.stores.directory.open_folder import OpenFolder
from daybreak.stores.directory.recovery import Recovery
from daybreak.stores.directory.tracked_book import TrackedBook

__all__ = ["place"]


async def by_kills(place, monkeypatch):
    await play_kills(place, lambda _: KilledDisk(), unclean=True)


async def by_power_cuts(place, monkeypatch):
    await play_kills(place, PowerCutDisk, unclean=True)


async def by_power_cuts_with_checkpoints(place, monkeypatch):
    checkpoint_always(monkeypatch)
    await play_kills(place, PowerCutDisk, unclean=False, only=WITH_CHECKPOINTS)


async def by_errors(place, monkeypatch):
    test = test_failing_disk.test_an_error_at_any_step_never_leaves_memory_and_disk_apart
    await test(place, errno.EIO, lasting=False, monkeypatch=monkeypatch)


def journal_is_not_synced(patch):
    append = Journal.append
    patch.setattr(Journal, "append", lambda self, change, *, sync: append(self, change, sync=False))


def job_files_are_not_synced(patch):
    patch.setattr(JobFiles, "sync_all_but", lambda self, latest: None)


def keys_are_not_written(patch):
    change = TrackedBook.change

    def without_keys(self, *args):
        self.own_keys.touched.clear()
        return change(self, *args)

    patch.setattr(TrackedBook, "change", without_keys)


def first_writing_of_data_only(patch):
    patch.setattr(JobFiles, "has_data", lambda self, seq: True)


def files_win_over_the_journal(patch):
    of_image = Recovery._of_image

    def from_files(self, seq, stem, files):
        shown = next(self._folder.jobs({stem: files}), None) if files is not None else None
        return shown or of_image(self, seq, stem, files)

    patch.setattr(Recovery, "_of_image", from_files)


def memory_is_kept_after_an_error(patch):
    patch.setattr(OpenFolder, "_is_stale", property(lambda _: False, lambda _, is_stale: None), raising=False)


def record_of_a_failed_write_stays(patch):
    patch.setattr(Journal, "withdraw", lambda self: None)


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (journal_is_not_synced, by_power_cuts),
        (job_files_are_not_synced, by_power_cuts_with_checkpoints),
        (keys_are_not_written, by_kills),
        (first_writing_of_data_only, by_kills),
        (files_win_over_the_journal, by_kills),
        (memory_is_kept_after_an_error, by_errors),
        (record_of_a_failed_write_stays, by_errors),
    ],
    ids=lambda one: one.__name__,
)
async def test_a_planted_fault_is_found(place, monkeypatch, plant, found):
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        with pytest.raises((AssertionError, KeyError, FileNotFoundError)):
            await found(place, monkeypatch)

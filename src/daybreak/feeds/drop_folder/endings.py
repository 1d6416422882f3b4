"""What becomes of a file, by how its job ended, and the note that is written beside it."""

from __future__ import annotations

from datetime import datetime

from daybreak.core.model import Job, State
from daybreak.feeds.drop_folder.declaration import FolderWatch
from daybreak.feeds.drop_folder.destinations import ERROR_NOTE, Ending
from daybreak.feeds.drop_folder.entry_name import EntryName


def ending_of(watch: FolderWatch, entry: EntryName, job: Job, *, again: bool = False) -> Ending:
    """The ending of a file whose job is final. `again`: the job was made for an earlier drop of the same file."""
    if job.state is not State.COMPLETED:
        return _failed(watch, entry, job)
    if again:
        return repeated(watch, entry, job.finished_at, job)
    return Ending(place=watch.done, job=job.id, marker=watch.done_marker)


def _failed(watch: FolderWatch, entry: EntryName, job: Job) -> Ending:
    failure = job.failure
    note = {
        "file": entry.path or job.spec.meta.get("file"), "job": job.id, "state": job.state.value,
        "reason": None if job.reason is None else job.reason.value,
        "error": job.note if failure is None else str(failure), "attempts": job.attempt,
        "finished_at": job.finished_at, "what_to_do": f"daybreak jobs show {job.id}; to try again, drop the file again",
    }  # fmt: skip
    return Ending(place=watch.failed, job=job.id, note=note, suffix=ERROR_NOTE, marker=watch.done_marker)


def repeated(watch: FolderWatch, entry: EntryName, at: datetime | None, job: Job | None = None) -> Ending:
    """The ending of a file that needs no job, because it was handled before."""
    why = "the same file was handled before"
    if entry.leftover == "completed":
        why = "the old queue had completed it"
    note: dict[str, object] = {"file": entry.path, "note": why, "at": at}
    if job is None:
        return Ending(place=watch.done, note=note, marker=watch.done_marker)
    return Ending(place=watch.done, job=job.id, note={**note, "job": job.id}, marker=watch.done_marker)


def refused(watch: FolderWatch, entry: EntryName, why: str, at: datetime) -> Ending:
    """The ending of a file that can never become a job as it is."""
    note = {
        "file": entry.path, "state": "refused", "error": why, "finished_at": at,
        "what_to_do": "correct it, and drop the file again",
    }  # fmt: skip
    return Ending(place=watch.failed, note=note, suffix=ERROR_NOTE, marker=watch.done_marker)

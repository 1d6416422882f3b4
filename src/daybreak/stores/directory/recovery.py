"""Loads a folder: the state file, then the journal, then the files of jobs.

A job whose latest change is in the journal is taken from there, unless its files show that change already. Repeating a
recovery that was interrupted gives the same result."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from daybreak.core.errors import StoreCorrupt, StoreTooNew
from daybreak.core.model import DEFAULT_QUEUE, FINAL, UNFINISHED, QueueSettings, State
from daybreak.core.rank import rank_of
from daybreak.core.resource_gauge import Gauge
from daybreak.core.units import span
from daybreak.store.protocol import keep_until
from daybreak.stores.directory.changes import Change, JobImage, Rest
from daybreak.stores.directory.entry import row_of
from daybreak.stores.directory.file_names import id_of, is_stem_of
from daybreak.stores.directory.folder_scan import Files, Folder, Found
from daybreak.stores.directory.job_files import JobFiles, Place
from daybreak.stores.directory.layout import Layout
from daybreak.stores.directory.tracked_book import Now, TrackedBook
from daybreak.stores.memory.book import Key

_log = logging.getLogger("daybreak.directory")
VERSION: Final = 1
KEYS_FOR: Final = span(timedelta(hours=24))
_decoder = msgspec.json.Decoder(Rest)


def read_rest(path: Path) -> Rest | None:
    """The state file; None if there is none."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        version = msgspec.json.decode(content, type=_Version).version
        if version > VERSION:
            raise StoreTooNew(
                f"{path} was written by a newer version of Daybreak (format {version}; this one knows {VERSION}): "
                "upgrade this installation"
            )
        return _decoder.decode(content)
    except msgspec.DecodeError as error:
        raise StoreCorrupt(
            f"{path} is damaged ({error}): it holds queue settings, keys, totals and events. Restore it from a backup, "
            "or move it away to load the jobs without them"
        ) from None


class _Version(msgspec.Struct):
    version: int = 1


@dataclass(slots=True)
class Replayed:
    """The state file with the journal applied, and the jobs that the journal knows."""

    rest: Rest
    images: dict[int, tuple[int, JobImage]] = field(default_factory=dict)
    args: dict[int, bytes] = field(default_factory=dict)
    gone: dict[int, tuple[int, str]] = field(default_factory=dict)
    beats: dict[int, tuple[int, int]] = field(default_factory=dict)

    def apply_all(self, changes: Iterable[Change]) -> None:
        """Apply the records of the journal that the state file does not include."""
        rest = self.rest
        records = {(record.kind, record.name): record for record in rest.records}
        totals = {(total.lane, total.priority): total for total in rest.totals}
        for change in changes:
            if change.number <= rest.number:
                continue
            rest.number, rest.wall, rest.steady = change.number, change.wall, change.steady
            rest.seq, rest.revision = change.seq, change.revision
            del rest.feed[: max(change.feed_start - rest.feed_start, 0)]
            rest.feed += change.feed
            rest.feed_start = change.feed_start
            _merge(rest.keys, change.keys)
            _merge(rest.uniques, change.uniques)
            _merge(records, {(kind, name): record for kind, name, record in change.records})
            rest.gauges.update(change.gauges)
            totals.update({(total.lane, total.priority): total for total in change.totals})
            self._apply_jobs(change)
        rest.records, rest.totals = list(records.values()), list(totals.values())

    def _apply_jobs(self, change: Change) -> None:
        for image in change.jobs:
            seq = image.entry.seq
            self.images[seq] = (change.number, image)
            self.beats.pop(seq, None)
            if image.args is not None:
                self.args[seq] = image.args
        self.beats.update(change.beats)
        for seq, stem in change.gone.items():
            self.gone[seq] = (change.number, stem)
            self.images.pop(seq, None)
            self.args.pop(seq, None)


def _merge(into: dict, changed: dict) -> None:  # type: ignore[type-arg]
    for name, value in changed.items():
        if value is None:
            into.pop(name, None)
        else:
            into[name] = value


@dataclass(slots=True)
class Recovered:
    """What was loaded. `behind` are the jobs whose files must be written, `left` the files of deleted jobs, and
    `renamed` the jobs whose files a person renamed, with the state that they are named after. `freed` are resources
    that must be offered to waiting jobs."""

    book: TrackedBook
    rest: Rest
    behind: set[int] = field(default_factory=set)
    left: list[Path] = field(default_factory=list)
    renamed: list[tuple[int, State]] = field(default_factory=list)
    freed: set[str] = field(default_factory=set)
    adopted: int = 0


class Recovery:
    """One loading of a folder."""

    def __init__(
        self, folder: Folder, files: JobFiles, layout: Layout, replayed: Replayed, *, rest_is_lost: bool
    ) -> None:
        self._folder = folder
        self._files = files
        self._layout = layout
        self._replayed = replayed
        self._rest_is_lost = rest_is_lost
        self._keys: dict[int, tuple[str, ...]] = {}  # those that stand for each job, as its files say
        self._result = Recovered(TrackedBook(), replayed.rest)

    def run(self, now: Now) -> Recovered:
        found = self._known(self._journalled())
        book, rest = self._result.book, self._replayed.rest
        rest.number = max([rest.number, *(one.number for one in found)])  # higher if the journal was moved away
        _load_rest(book, rest)
        own = sorted((one for one in found if not one.is_foreign), key=lambda one: (one.entry.seq, -one.number))
        for one in own:
            self._load(one, now)
        foreign = [one for one in found if one.is_foreign]
        for one in sorted(foreign, key=lambda one: (one.entry.created, one.place.stem)):
            self._adopt(one, now)
        self._load_links()
        self._recount_resources()
        return self._result

    # -- the journal and the files -------------------------------------------------------------------------------------

    def _journalled(self) -> list[Found]:
        """The jobs as the files show them, with those of the journal in place of older ones."""
        groups = self._folder.files()
        replayed = self._replayed
        stems = {image.stem: seq for seq, (_, image) in replayed.images.items()}
        for seq, (number, stem) in replayed.gone.items():
            if stem not in stems and stem in groups:
                self._drop_leftovers(groups, stem, seq, number)
        pending = {stem: groups.pop(stem) for stem in stems if stem in groups}
        found = list(self._folder.jobs(groups))
        for stem, seq in stems.items():
            one = self._of_image(seq, stem, pending.get(stem))
            if one is not None:
                found.append(one)
        return found

    def _drop_leftovers(self, groups: dict[str, Files], stem: str, seq: int, number: int) -> None:
        """Forget the files of a job that was deleted, unless they belong to a later one."""
        files = groups[stem]
        if files.is_whole:
            read = next(self._folder.jobs({stem: files}), None)
            if read is None or read.entry.seq != seq or read.number > number:
                return
        del groups[stem]
        self._result.left += [*files.data.values(), *files.meta.values()]

    def _of_image(self, seq: int, stem: str, files: Files | None) -> Found | None:
        number, image = self._replayed.images[seq]
        if files is not None and files.is_whole:
            shown = next(self._folder.jobs({stem: files}), None)
            if shown is not None and shown.entry.seq == seq and shown.number >= number:
                return shown
        args, data = self._replayed.args.get(seq), None
        if files is not None and files.data:
            data, path = next(iter(sorted(files.data.items())))
            if args is None:
                args = self._layout.args_of(path.read_bytes(), is_raw=self._folder.has_raw_data(files))
            else:
                data = None  # it may have been written in part: write it again
        if args is None:
            _log.error("job %s cannot be loaded: its data file %s is gone", image.entry.spec.id, stem)
            return None
        entry = image.entry
        entry.spec = replace(entry.spec, args=args)
        self._result.behind.add(seq)
        word = self._layout.words[entry.state]
        self._note_extra_files(files, keep_data=data, keep_word=word)
        return Found(entry, word, Place(stem, data), files or Files(stem), number)

    def _note_extra_files(self, files: Files | None, *, keep_data: str | None, keep_word: str) -> None:
        """Files under other words than the job will have, which an interrupted change left."""
        if files is None:
            return
        self._result.left += [path for word, path in files.meta.items() if word != keep_word]
        self._result.left += [path for word, path in files.data.items() if word not in (keep_word, keep_data)]

    def _known(self, found: list[Found]) -> list[Found]:
        """Each job once. Files that were copied to another name are another job, with the id of their name."""
        jobs: dict[str, Found] = {}
        for one in sorted(found, key=lambda one: -one.number):
            spec = one.entry.spec
            if not is_stem_of(one.place.stem, spec.id):
                one.entry.spec = replace(spec, id=id_of(one.place.stem) or one.place.stem, key=None, unique=None)
                one.entry.keys = ()
                one.entry.seq = 0
            other = jobs.setdefault(one.entry.spec.id, one)
            if other is not one:
                for path in (*one.files.data.values(), *one.files.meta.values()):
                    self._folder.put_aside(path, f"job {spec.id} has newer files")
        return list(jobs.values())

    # -- into the store's data -----------------------------------------------------------------------------------------

    def _load(self, one: Found, now: Now) -> None:
        entry, book = one.entry, self._result.book
        if entry.seq == 0 or entry.seq in book.jobs:
            self._adopt(one, now)
            return
        book.seq = max(book.seq, entry.seq)
        beat = self._replayed.beats.get(entry.seq)
        if beat is not None and entry.state is State.RUNNING:
            entry.until, entry.term = beat
            self._result.behind.add(entry.seq)
        self._enter(one)
        book.own_jobs.touched.discard(entry.seq)
        states = self._layout.states(one.word)
        if entry.state not in states:
            waiting = states & {State.QUEUED, State.SCHEDULED, State.BLOCKED, State.RUNNING}
            self._result.renamed.append((entry.seq, State.QUEUED if waiting else min(states)))

    def _adopt(self, one: Found, now: Now) -> None:
        """Load a job without a place in the order: it gets the next one."""
        entry, book = one.entry, self._result.book
        if entry.spec.id in book.ids:
            return
        book.seq += 1
        entry.seq = book.seq
        entry.arrived = now.steady - max(0, now.wall - entry.created)
        settings = book.queues.get(entry.spec.queue, DEFAULT_QUEUE)
        entry.rank = rank_of(settings, entry.priority, entry.arrived, entry.seq)
        if entry.state in FINAL and entry.finished is not None:
            entry.purge_at = keep_until(row_of(entry).as_job(), now.wall, now.steady)
        self._enter(one)
        self._result.behind.add(entry.seq)
        self._result.adopted += 1
        for event in entry.history[-1:]:
            book.feed.append((now.steady, event))
        states = self._layout.states(one.word)
        if not one.is_foreign and entry.state not in states:
            self._result.renamed.append((entry.seq, State.QUEUED if State.QUEUED in states else min(states)))

    def _enter(self, one: Found) -> None:
        row, book = row_of(one.entry), self._result.book
        row.stored = row.place
        book.jobs[row.seq] = row
        book.ids[row.id] = row.seq
        book.place(row, row.stored)
        book.tallies[row.name, row.priority, row.state] += 1
        self._files.note(row.seq, one.place)
        self._keys[row.seq] = one.entry.keys

    # -- what connects jobs --------------------------------------------------------------------------------------------

    def _load_links(self) -> None:
        """Unique names and keys. Without the state file, they are derived from the jobs."""
        book, rest = self._result.book, self._replayed.rest
        for name, seq in rest.uniques.items():
            if seq in book.jobs and book.jobs[seq].state in UNFINISHED:
                book.uniques[name] = seq
        for seq, row in book.jobs.items():
            spec = row.spec
            if self._rest_is_lost and spec.unique is not None and row.state in UNFINISHED:
                book.uniques.setdefault(spec.unique, seq)
            if spec.key is not None and spec.key in self._keys[seq] and spec.key not in book.keys:
                book.keys[spec.key] = Key(spec.digest, spec.id, row.arrived)
        for name, key in book.keys.items():
            if key.until is None and key.job not in book.ids:
                key.until = key.at + KEYS_FOR
            book.keys_of_job.setdefault(key.job, []).append(name)
        book.own_uniques.touched.clear()
        book.own_keys.touched.clear()

    def _recount_resources(self) -> None:
        """Correct what is in use of resources, and what is reserved, if the files show otherwise."""
        book, used = self._result.book, Counter[str]()
        running = [book.jobs[seq] for seq in sorted(book.running)]
        # One for each batch call. The job after which a call is named may run on its own beside what is left of it.
        holders = {(row.group is None, row.group or row.seq): row.needs for row in running}
        for needs in holders.values():
            used.update({need.resource: need.slots for need in needs})
        for name in {*book.gauges, *used}:
            gauge = book.gauges.get(name, Gauge())
            kept = gauge.kept if gauge.kept is None or gauge.kept.seq in book.jobs else None
            if (gauge.used, gauge.kept) != (used[name], kept):
                book.gauges[name] = dataclass_replace(gauge, used=used[name], kept=kept)
                self._result.freed.add(name)


def _load_rest(book: TrackedBook, rest: Rest) -> None:
    book.seq, book.revision = rest.seq, rest.revision
    book.feed, book.feed_start = list(rest.feed), rest.feed_start
    for record in rest.records:
        book.records[record.kind, record.name] = record
        if record.kind == "queue":
            book.queues[record.name] = msgspec.json.decode(record.value, type=QueueSettings)
    book.keys.update(rest.keys)
    book.gauges.update(rest.gauges)
    for total in rest.totals:
        book.totals[total.lane, total.priority] = dict(total.of)
    book.forget_changes()

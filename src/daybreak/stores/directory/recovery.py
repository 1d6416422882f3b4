"""Loads a folder: the state file, then the journal, then the files of jobs.

A job whose latest change is in the journal is taken from there, unless its files show that change already. Repeating a
recovery that was interrupted gives the same result."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from daybreak.core.errors import StoreCorrupt, StoreTooNew
from daybreak.core.model import FINAL, UNFINISHED, QueueSettings, State
from daybreak.core.rank import rank_of
from daybreak.core.units import span
from daybreak.store.protocol import keep_until
from daybreak.stores.directory.changes import Change, JobImage, Rest
from daybreak.stores.directory.file_names import id_of, is_stem_of
from daybreak.stores.directory.folder_scan import Files, Folder, Found
from daybreak.stores.directory.job_files import JobFiles, Place
from daybreak.stores.directory.layout import Layout
from daybreak.stores.directory.tracked_ledger import TrackedLedger
from daybreak.stores.memory.book import Key, Now
from daybreak.stores.memory.counts import Counts
from daybreak.stores.memory.entry import Entry

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
    `renamed` the jobs whose files a person renamed, with the state that they are named after."""

    ledger: TrackedLedger
    rest: Rest
    behind: set[int] = field(default_factory=set)
    left: list[Path] = field(default_factory=list)
    renamed: list[tuple[Entry, State]] = field(default_factory=list)
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
        self._result = Recovered(TrackedLedger(), replayed.rest)

    def run(self, now: Now) -> Recovered:
        found = self._known(self._journalled())
        ledger, rest = self._result.ledger, self._replayed.rest
        rest.number = max([rest.number, *(one.number for one in found)])  # higher if the journal was moved away
        _load_rest(ledger, rest)
        own = sorted((one for one in found if not one.is_foreign), key=lambda one: (one.entry.seq, -one.number))
        for one in own:
            self._load(one, now)
        foreign = [one for one in found if one.is_foreign]
        for one in sorted(foreign, key=lambda one: (one.entry.created, one.place.stem)):
            self._adopt(one, now)
        _load_links(ledger, rest, derive=self._rest_is_lost)
        ledger.forget_links()
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

    # -- into the ledger -----------------------------------------------------------------------------------------------

    def _load(self, one: Found, now: Now) -> None:
        entry, ledger = one.entry, self._result.ledger
        if entry.seq == 0 or entry.seq in ledger.jobs:
            self._adopt(one, now)
            return
        ledger.seq = max(ledger.seq, entry.seq)
        beat = self._replayed.beats.get(entry.seq)
        if beat is not None and entry.state is State.RUNNING:
            entry.until, entry.term = beat
            self._result.behind.add(entry.seq)
        self._enter(one)
        states = self._layout.states(one.word)
        if entry.state not in states:
            waiting = states & {State.QUEUED, State.SCHEDULED, State.BLOCKED, State.RUNNING}
            self._result.renamed.append((entry, State.QUEUED if waiting else min(states)))

    def _adopt(self, one: Found, now: Now) -> None:
        """Load a job without a place in the order: it gets the next one."""
        entry, ledger = one.entry, self._result.ledger
        if entry.spec.id in ledger.ids:
            return
        ledger.seq += 1
        entry.seq = ledger.seq
        entry.arrived = now.steady - max(0, now.wall - entry.created)
        entry.rank = rank_of(ledger.settings(entry.spec.queue), entry.priority, entry.arrived, entry.seq)
        if entry.state in FINAL and entry.finished is not None:
            entry.purge_at = keep_until(entry.as_job(), now.wall, now.steady)
        self._enter(one)
        self._result.behind.add(entry.seq)
        self._result.adopted += 1
        ledger.changed[entry.seq] = entry
        for event in entry.history[-1:]:
            ledger.feed.append((now.steady, event))
        states = self._layout.states(one.word)
        if not one.is_foreign and entry.state not in states:
            self._result.renamed.append((entry, State.QUEUED if State.QUEUED in states else min(states)))

    def _enter(self, one: Found) -> None:
        entry, ledger = one.entry, self._result.ledger
        ledger.jobs[entry.seq] = ledger.ids[entry.spec.id] = entry
        self._files.note(entry.seq, one.place)
        if entry.state in UNFINISHED:
            ledger.unfinished[entry.spec.queue] += 1
            if entry.expires is not None:
                ledger.expiring.add(entry.expires, entry.seq)
        ledger.place(entry)


def _load_rest(ledger: TrackedLedger, rest: Rest) -> None:
    ledger.seq, ledger.revision = rest.seq, rest.revision
    ledger.feed, ledger.feed_start = list(rest.feed), rest.feed_start
    for record in rest.records:
        ledger.records[record.kind, record.name] = record
        if record.kind == "queue":
            ledger.queues[record.name] = msgspec.json.decode(record.value, type=QueueSettings)
    ledger.keys.update(rest.keys)
    ledger.gauges.update(rest.gauges)
    for total in rest.totals:
        counts = ledger.totals[total.lane, total.priority] = Counts()
        counts.of = dict(total.of)
    ledger.forget_changes()
    ledger.note_gauges()


def _load_links(ledger: TrackedLedger, rest: Rest, *, derive: bool) -> None:
    """What connects jobs with names: unique names, keys, and resources in use."""
    for name, seq in rest.uniques.items():
        holder = ledger.jobs.get(seq)
        if holder is not None and holder.state in UNFINISHED:
            ledger.uniques[name] = holder
    for entry in ledger.jobs.values():
        spec = entry.spec
        if derive and spec.unique is not None and entry.state in UNFINISHED:
            ledger.uniques.setdefault(spec.unique, entry)
        if spec.key is not None and spec.key in entry.keys and spec.key not in ledger.keys:
            ledger.keys[spec.key] = Key(spec.digest, spec.id, entry.arrived)
        entry.keys = tuple(key for key in entry.keys if key in ledger.keys)
    for key in ledger.keys.values():
        if key.until is None and key.job not in ledger.ids:
            key.until = key.at + KEYS_FOR
    used: dict[str, int] = {}
    for entry in ledger.running.values():
        for need in entry.needs:
            used[need.resource] = used.get(need.resource, 0) + need.slots
    for name in {*ledger.gauges, *used}:
        gauge = ledger.gauge(name)
        if gauge.used != used.get(name, 0):
            gauge.used = used.get(name, 0)
            ledger.freed.add(name)
        if gauge.kept is not None and gauge.kept.seq not in ledger.jobs:
            gauge.kept = None
            ledger.freed.add(name)

"""The logs of jobs in the store: what jobs printed and logged, in parts.

| kind | name | value |
|---|---|---|
| `log JOB` | `FENCE ATTEMPT START` | the bytes from START on, at most 8 KiB, as UTF-8 |
| `logged 00` to `logged 13` | the job | empty text: this job has a log |

A run of a job is one lease, so its fence tells apart the runs of one attempt, such as one that was handed back. Bytes
that no part holds were left out. A log is written only after the `logged` record of its job, in one transaction, so the
janitor finds every log whose job is gone."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from daybreak.core.errors import BadInput
from daybreak.core.model import Put, Record
from daybreak.core.units import counted
from daybreak.store.protocol import Store

HEAD_BYTES: Final = 64 * 1024
TAIL_BYTES: Final = 64 * 1024
KEEP_RUNS: Final = 5  # of each job
INDEX_PARTS: Final = 20
MAX_SWEPT: Final = 2000  # jobs that one sweep checks
_CHUNK: Final = 200
_MARK: Final = b"1"


class LogPiece(Struct, frozen=True, kw_only=True):
    """A part of the output of one attempt without gaps. `skipped` bytes before it were left out."""

    attempt: int
    fence: int
    start: int
    text: str
    skipped: int = 0


class JobLogs(Struct, frozen=True, kw_only=True):
    """The output of a job, the oldest attempt first. `next` is the place where it ends: pass it as `after` to read only
    what comes later."""

    pieces: list[LogPiece]
    next: str

    @property
    def skipped(self) -> int:
        """How many bytes were left out."""
        return sum(piece.skipped for piece in self.pieces)

    @property
    def text(self) -> str:
        """The whole output as one text. A line says where bytes were left out."""
        return "".join(_with_gap(piece) for piece in self.pieces)

    def __str__(self) -> str:
        return self.text


def _with_gap(piece: LogPiece) -> str:
    if not piece.skipped:
        return piece.text
    return f"\n... {counted(piece.skipped, 'byte')} left out ...\n{piece.text}"


class _Part(Struct, frozen=True):
    fence: int
    attempt: int
    start: int
    data: bytes


# -- names -------------------------------------------------------------------------------------------------------------


def log_kind(job: str) -> str:
    return f"log {job}"


def index_kind(part: int) -> str:
    return f"logged {part:02x}"


def index_put(job: str) -> Put:
    """Says that a job has a log."""
    return Put(kind=index_kind(zlib.crc32(job.encode()) % INDEX_PARTS), name=job, value=_MARK)


def part_name(fence: int, attempt: int, start: int) -> str:
    return f"{fence:08} {attempt} {start:012}"


def _part_of(record: Record) -> _Part:
    fence, attempt, start = record.name.split(" ")
    return _Part(int(fence), int(attempt), int(start), record.value)


# -- reading -----------------------------------------------------------------------------------------------------------


async def read_logs(store: Store, job: str, *, attempt: int | None = None, after: str = "") -> JobLogs:
    """The output of a job; with `attempt` of this attempt alone, with `after` only what comes after that place."""
    since = _place_of(after)
    parts = sorted(
        (_part_of(record) for record in await store.records(log_kind(job))), key=lambda part: (part.fence, part.start)
    )
    pieces: list[LogPiece] = []
    last = since
    for fence in dict.fromkeys(part.fence for part in parts):
        run = [part for part in parts if part.fence == fence]
        end = run[-1].start + len(run[-1].data)
        if fence < since[0] or (attempt is not None and run[0].attempt != attempt):
            continue
        pieces += _pieces(run, end, since[1] if fence == since[0] else 0)
        last = max(last, (fence, end))
    return JobLogs(pieces=pieces, next="" if last == (0, 0) else f"{last[0]}-{last[1]}")


def _pieces(run: Sequence[_Part], end: int, since: int) -> list[LogPiece]:
    """The parts of one run from this byte on, joined where nothing is missing between them."""
    tail_from = max(end - TAIL_BYTES, HEAD_BYTES)  # the first part of the tail may begin before it
    joined: list[tuple[int, bytearray]] = []
    for part in run:
        start = max(part.start, since)
        if part.start >= HEAD_BYTES:
            start = max(start, tail_from)
        data = part.data[start - part.start :] if start > part.start else part.data
        if not data:
            continue
        if joined and joined[-1][0] + len(joined[-1][1]) == start:
            joined[-1][1].extend(data)
        else:
            joined.append((start, bytearray(data)))
    pieces, known = [], since
    for start, joined_data in joined:
        pieces.append(
            LogPiece(
                attempt=run[0].attempt,
                fence=run[0].fence,
                start=start,
                text=joined_data.decode("utf-8", "replace"),
                skipped=start - known,
            )
        )
        known = start + len(joined_data)
    return pieces


def _place_of(after: str) -> tuple[int, int]:
    if not after:
        return 0, 0
    fence, _, start = after.partition("-")
    if not (fence.isascii() and fence.isdigit() and start.isascii() and start.isdigit() and len(after) <= 40):
        raise BadInput(f"after: {after!r:.60} is no place in a log; use the field 'next' of an earlier answer")
    return int(fence), int(start)


# -- deleting ----------------------------------------------------------------------------------------------------------


async def delete_logs(store: Store, jobs: Iterable[str]) -> None:
    """Delete the logs of these jobs. One transaction per job: its `logged` record goes with the last part."""
    for job in jobs:
        index = index_put(job)
        if await store.records(index.kind, job):
            parts = await store.records(log_kind(job))
            await store.put([
                *(Put(kind=part.kind, name=part.name, value=None) for part in parts),
                Put(kind=index.kind, name=job, value=None),
            ])  # fmt: skip


async def surplus_parts(store: Store, job: str, fence: int) -> list[Put]:
    """What deletes the logs of all but the latest runs, if the run with this fence is the newest."""
    records = await store.records(log_kind(job))
    fences = sorted({_part_of(record).fence for record in records} | {fence})
    kept = set(fences[-KEEP_RUNS:])
    return [
        Put(kind=record.kind, name=record.name, value=None)
        for record in records
        if _part_of(record).fence not in kept
    ]  # fmt: skip


async def sweep_logs(store: Store, part: int, chance: float) -> None:
    """Delete the logs whose jobs are gone. Checks a bounded number of jobs of this part, from a random one on."""
    jobs = [record.name for record in await store.records(index_kind(part))]
    first = int(chance * len(jobs)) if len(jobs) > MAX_SWEPT else 0
    jobs = (jobs[first:] + jobs[:first])[:MAX_SWEPT]
    for at in range(0, len(jobs), _CHUNK):
        chunk = jobs[at : at + _CHUNK]
        found = await store.get(chunk)
        await delete_logs(store, [job for job, there in zip(chunk, found, strict=True) if there is None])


# -- moving ------------------------------------------------------------------------------------------------------------


async def copy_logs(source: Store, target: Store, job: str) -> None:
    """Copy the log of a job to another store. Copying it again changes nothing."""
    parts = await source.records(log_kind(job))
    if parts:
        await target.put([
            index_put(job), *(Put(kind=part.kind, name=part.name, value=part.value) for part in parts)
        ])  # fmt: skip

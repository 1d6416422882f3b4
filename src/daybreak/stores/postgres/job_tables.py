"""Writes jobs: the immutable part into the table `job`, the rest into the table of the job's state.

Rows of `ready`, `delayed`, `held` and `done` are deleted and inserted, never updated. A lease that stays a lease is
updated: a heartbeat that waits for its lock must find it afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from daybreak.core.errors import BadInput
from daybreak.core.model import State, has_claim_rule
from daybreak.stores.kernel.packing import pack_extra, pack_options
from daybreak.stores.kernel.row import LaneName, Row
from daybreak.stores.postgres.arrays import Bigints, Blobs, Bools, Floats, Ints, Smallints, Texts
from daybreak.stores.postgres.event_lines import SEPARATOR
from daybreak.stores.postgres.rows import carry_of, pack_needs, text_bytes
from daybreak.stores.postgres.statements import Statements

TABLES: Final = {
    State.RUNNING: "lease",
    State.QUEUED: "ready",
    State.SCHEDULED: "delayed",
    State.SUSPENDED: "held",
    State.BLOCKED: "held",
    State.COMPLETED: "done",
    State.FAILED: "done",
    State.CANCELLED: "done",
}


class JobTables:
    """The tables of jobs. `lanes` has the lanes of all rows that are written."""

    def __init__(self, sql: Statements, run: Callable[..., int]) -> None:
        self._sql = sql
        self._run = run
        self.deleted_rows = 0  # from `ready` and `delayed`, which must be vacuumed often

    def write(self, rows: Sequence[Row], lanes: Mapping[LaneName, int]) -> None:
        """Move jobs to where they belong now, all of one kind with one statement."""
        moved: list[Row] = []
        kept: list[Row] = []
        new: list[Row] = []
        for row in rows:
            if row.stored is None:
                new.append(row)
            elif row.state is State.RUNNING and row.stored.state is State.RUNNING:
                kept.append(row)
            else:
                moved.append(row)
        self._leave(moved, lanes)
        self._update_jobs(moved)
        if kept:
            self._update_leases(kept)
        if new:
            self._insert_jobs(new, lanes)
            moved += new
        for table, group in _by_table(moved, [row.state for row in moved]).items():
            self._enter(table, group, lanes)

    def delete(self, rows: Sequence[Row], lanes: Mapping[LaneName, int]) -> None:
        """Delete jobs."""
        self._leave(rows, lanes)
        self._run(self._sql.delete_jobs, (_seqs(rows),))

    def _leave(self, rows: Sequence[Row], lanes: Mapping[LaneName, int]) -> None:
        places = [row.stored for row in rows if row.stored is not None]
        for table, group in _by_table(rows, [place.state for place in places]).items():
            if table in ("ready", "delayed"):
                self.deleted_rows += len(group)
            if table != "ready":
                self._run(self._sql.text(f"delete_{table}"), (_seqs(group),))
                continue
            queued = [place for place in places if place.state is State.QUEUED]
            self._run(
                self._sql.delete_ready,
                (
                    Ints([lanes[row.name] for row in group]), Smallints([place.band for place in queued]),
                    Bigints([place.ord for place in queued]), _seqs(group),
                ),
            )  # fmt: skip

    # -- the immutable part, and what of it changes --------------------------------------------------------------------

    def _insert_jobs(self, rows: Sequence[Row], lanes: Mapping[LaneName, int]) -> None:
        specs = [row.spec for row in rows]
        for row in rows:
            if SEPARATOR in row.id:
                raise BadInput(f"job {row.id!r}: an id must not contain character 31 (unit separator)")
            if row.shortened:  # no column says so: the history begins with the event that does
                first = row.lines.write(row.first_event())
                row.history = first if row.history is None else row.lines.joined(first, row.history)
        self._run(
            self._sql.insert_job,
            (
                _seqs(rows), Texts([r.id for r in rows]), Ints([lanes[r.name] for r in rows]),
                Smallints([r.band for r in rows]), Bigints([r.ord for r in rows]),
                Smallints([r.priority for r in rows]), Smallints([s.priority for s in specs]),
                Bigints([r.created for r in rows]), Bigints([r.arrived for r in rows]),
                Bigints([r.expires for r in rows]), Texts([s.by for s in specs]), Texts([s.run for s in specs]),
                Texts([s.owner for s in specs]), Texts([s.key for s in specs]), Texts([s.unique for s in specs]),
                Texts([r.flight for r in rows]),
                Blobs([pack_options(s.options) for s in specs]), Blobs([pack_extra(s) for s in specs]),
                Blobs([s.args for s in specs]),
            ),
        )  # fmt: skip

    def _update_jobs(self, rows: Sequence[Row]) -> None:
        ranked: list[Row] = []
        begun: list[Row] = []
        for row in rows:
            stored = row.stored
            assert stored is not None
            if (row.band, row.ord, row.priority) != (stored.band, stored.ord, stored.priority):
                ranked.append(row)
            if row.expires is None and stored.expires is not None:
                begun.append(row)
        if ranked:
            self._run(
                self._sql.rerank_jobs,
                (
                    _seqs(ranked), Smallints([row.band for row in ranked]), Bigints([row.ord for row in ranked]),
                    Smallints([row.priority for row in ranked]),
                ),
            )  # fmt: skip
        if begun:
            self._run(self._sql.forget_expiry, (_seqs(begun),))

    # -- the table of the state ----------------------------------------------------------------------------------------

    def _enter(self, table: str, rows: Sequence[Row], lanes: Mapping[LaneName, int]) -> None:
        match table:
            case "ready":
                self._enter_ready(rows, lanes)
            case "delayed":
                self._enter_delayed(rows)
            case "held":
                self._enter_held(rows, lanes)
            case "done":
                self._enter_done(rows)
            case _:
                self._enter_lease(rows, lanes)

    def _enter_ready(self, rows: Sequence[Row], lanes: Mapping[LaneName, int]) -> None:
        self._run(
            self._sql.insert_ready,
            (
                Ints([lanes[r.name] for r in rows]), Smallints([r.band for r in rows]),
                Smallints([r.priority for r in rows]), Bigints([r.ord for r in rows]), _seqs(rows),
                Bigints([r.expires for r in rows]), *_moving_columns(rows), Texts([pack_needs(r.needs) for r in rows]),
                Texts([r.batch for r in rows]), Bools([has_claim_rule(r.spec) for r in rows]),
            ),
        )  # fmt: skip

    def _enter_delayed(self, rows: Sequence[Row]) -> None:
        self._run(
            self._sql.insert_delayed,
            (_seqs(rows), Smallints([r.clock for r in rows]), Bigints([r.due for r in rows]), *_moving_columns(rows)),
        )

    def _enter_held(self, rows: Sequence[Row], lanes: Mapping[LaneName, int]) -> None:
        self._run(
            self._sql.insert_held,
            (
                _seqs(rows), Texts([r.state.value for r in rows]), Texts([cause_of(r.state, r.cause) for r in rows]),
                Ints([lanes[r.name] for r in rows]), Smallints([r.band for r in rows]), Bigints([r.ord for r in rows]),
                Smallints([r.clock for r in rows]), Bigints([r.due for r in rows]), *_moving_columns(rows),
                Texts([r.company_at(r.place) for r in rows]),
            ),
        )  # fmt: skip

    def _enter_done(self, rows: Sequence[Row]) -> None:
        self._run(
            self._sql.insert_done,
            (
                _seqs(rows), Texts([r.state.value for r in rows]), Texts([r.reason for r in rows]),
                Bigints([r.finished for r in rows]), Bigints([r.purge_at for r in rows]),
                Blobs([None if r.result_of is not None else r.result for r in rows]), *_moving_columns(rows),
                Bigints([r.result_of for r in rows]),
            ),
        )  # fmt: skip

    def _enter_lease(self, rows: Sequence[Row], lanes: Mapping[LaneName, int]) -> None:
        self._run(
            self._sql.insert_lease,
            (
                _seqs(rows), Ints([lanes[r.name] for r in rows]), Smallints([r.priority for r in rows]),
                Texts([r.unique for r in rows]), Texts([r.flight for r in rows]),
                Ints([r.attempt for r in rows]), Ints([r.fence for r in rows]),
                Ints([r.n for r in rows]), Texts([r.worker for r in rows]), Bigints([r.until for r in rows]),
                Bigints([r.term for r in rows]), Bigints([r.started for r in rows]), Texts([r.call for r in rows]),
                Blobs([carry_of(r) for r in rows]), Texts([r.history for r in rows]),
                Texts([pack_needs(r.needs) for r in rows]), Bools([r.ahead for r in rows]),
                Bigints([r.group for r in rows]), Ints([r.elements for r in rows]),
            ),
        )  # fmt: skip

    def _update_leases(self, rows: Sequence[Row]) -> None:
        self._run(
            self._sql.update_leases,
            (
                _seqs(rows), Ints([r.attempt for r in rows]), Ints([r.fence for r in rows]),
                Ints([r.n for r in rows]), Texts([r.worker for r in rows]), Bigints([r.until for r in rows]),
                Bigints([r.term for r in rows]), Bigints([r.started for r in rows]), Texts([r.call for r in rows]),
                Blobs([carry_of(r) for r in rows]), Texts([r.history for r in rows]),
                Floats([r.progress for r in rows]), Blobs([text_bytes(r.message) for r in rows]),
                Bools([r.reaped for r in rows]), Bools([r.alone for r in rows]), Bools([r.ahead for r in rows]),
                Bools([r.suspending for r in rows]),
                Blobs([None if r.cancelling is None else r.cancelling.encode() for r in rows]),
            ),
        )  # fmt: skip


def cause_of(state: State, cause: str | None) -> str | None:
    """What a job waits for, if it is blocked."""
    return cause if state is State.BLOCKED else None


def _by_table(rows: Sequence[Row], states: Sequence[State]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row, state in zip(rows, states, strict=True):
        groups.setdefault(TABLES[state], []).append(row)
    return groups


def _seqs(rows: Sequence[Row]) -> Bigints:
    return Bigints([row.seq for row in rows])


def _moving_columns(rows: Sequence[Row]) -> tuple[Any, ...]:
    return (
        Ints([r.attempt for r in rows]), Ints([r.fence for r in rows]), Ints([r.n for r in rows]),
        Bigints([r.started for r in rows]), Floats([r.progress for r in rows]),
        Blobs([carry_of(r) for r in rows]), Blobs([text_bytes(r.note) for r in rows]),
        Blobs([text_bytes(r.message) for r in rows]), Texts([r.history for r in rows]),
    )  # fmt: skip

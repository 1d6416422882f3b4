"""What the store keeps of a schedule: its declaration, and how far it has come.

One record per schedule (kind `schedule`), written by compare-and-set. A tick writes the record and inserts its job in
one transaction, so the record alone says which ticks are done."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from daybreak.core.metadata import decode_meta, encode_meta
from daybreak.core.model import JobSpec, Need, Record
from daybreak.policy.admit import digest
from daybreak.policy.schedules.due_ticks import CatchUp, Overlap, jitter_of
from daybreak.policy.schedules.timing import Timing
from daybreak.store.protocol import SCHEDULE_KIND, Store

MAX_SCHEDULES: Final = 1000  # every scheduler reads them all
MAX_NAME: Final = 150  # the idempotency key of a tick is the name and the instant
MAX_ARGS: Final = 64 * 1024  # they are written with every tick
GRACE: Final = timedelta(minutes=1)


class Declaration(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was declared. `spec` is the job of every tick, without its arguments: these are `args`, encoded. Within
    `grace` a tick is on time; `jitter` is the longest delay of its job."""

    timing: Timing
    spec: JobSpec
    args: msgspec.Raw = msgspec.Raw(b"{}")
    catch_up: CatchUp = "latest"
    overlap: Overlap = "skip"
    grace: timedelta = GRACE
    jitter: timedelta = timedelta()

    def digest(self) -> str:
        """Equal for equal declarations. Whoever declared it, and the id of its job, do not count."""
        plain = replace(self, spec=replace(self.spec, id="", by=""))
        return hashlib.blake2b(msgspec.json.encode(plain, order="deterministic"), digest_size=16).hexdigest()


class Schedule(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A schedule as the store keeps it. Every tick up to `through` is done: `ticks` of them were fired and `skipped`
    were not; `last_tick` is the latest that was fired.

    `app` is the name of the app whose code declares it; None means that it was saved at run time. A paused schedule has
    `paused_at`. One that is being moved to another store is `moving`, and is not fired either."""

    declaration: Declaration
    through: datetime
    created_at: datetime
    changed_at: datetime
    changed_by: str = ""
    app: str | None = None
    paused_at: datetime | None = None
    paused_by: str = ""
    moving: bool = False
    ticks: int = 0
    skipped: int = 0
    last_tick: datetime | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether its ticks are not fired now."""
        return self.paused_at is not None or self.moving

    def encoded(self) -> bytes:
        return msgspec.json.encode(self)


class StoredSchedule(Struct, frozen=True):
    """A schedule with its name and the revision of its record."""

    name: str
    schedule: Schedule
    revision: int


def decode_schedule(record: Record) -> Schedule:
    """The schedule of a record. Raises msgspec.MsgspecError or ValueError if another version wrote it."""
    found = msgspec.json.decode(record.value, type=Schedule)
    declaration = found.declaration
    return replace(found, declaration=replace(declaration, args=declaration.args.copy()))


async def read_schedules(store: Store, name: str | None = None) -> list[StoredSchedule]:
    """The schedules of a store, by name. One that another version wrote, and this one cannot read, is left out."""
    found = []
    for record in await store.records(SCHEDULE_KIND, name):
        try:
            found.append(StoredSchedule(record.name, decode_schedule(record), record.revision))
        except (msgspec.MsgspecError, ValueError):
            continue
    return found


# -- the job of a tick -------------------------------------------------------------------------------------------------


def tick_key(name: str, tick: datetime) -> str:
    """The idempotency key of a tick's job."""
    return f"schedule/{name}/{tick_text(tick)}"


def tick_text(tick: datetime) -> str:
    return tick.astimezone(UTC).isoformat().replace("+00:00", "Z")


def schedule_tag(name: str) -> str:
    """The tag of all jobs of a schedule."""
    return f"schedule:{name}"


def schedule_of(spec: JobSpec) -> str | None:
    """The name of the schedule that a job belongs to; None if it belongs to none."""
    name = decode_meta(spec.meta).get("schedule")
    return name if isinstance(name, str) and schedule_tag(name) in spec.tags else None


def overlap_name(name: str) -> str:
    """The unique name of its jobs (`overlap="skip"`), or the resource of which each holds the only slot ("queue")."""
    return f"schedule/{name}"


def job_of_tick(name: str, declaration: Declaration, tick: datetime, new_id: str) -> JobSpec:
    """The job of one tick. The store starts it no earlier than the tick, whatever the clock of the scheduler says."""
    spec = _job(name, declaration, new_id, {"tick": tick_text(tick)})
    run_at = tick + jitter_of(name, tick, declaration.jitter)
    keyed = replace(spec, run_at=run_at, key=tick_key(name, tick), by=f"schedule {name}")
    return replace(keyed, digest=digest(keyed))


def job_now(name: str, declaration: Declaration, new_id: str, *, by: str) -> JobSpec:
    """The job of a schedule that somebody runs now, besides its ticks."""
    return replace(_job(name, declaration, new_id, {}), by=by)


def _job(name: str, declaration: Declaration, new_id: str, meta: dict[str, str]) -> JobSpec:
    spec = declaration.spec
    spec = replace(
        spec,
        id=new_id,
        args=bytes(declaration.args),
        tags=(*spec.tags, schedule_tag(name)),
        meta={**spec.meta, **encode_meta({"schedule": name, **meta})},
    )
    if declaration.overlap == "skip":
        return replace(spec, unique=overlap_name(name))
    if declaration.overlap == "queue":
        needs = sorted([*spec.options.resources, Need(overlap_name(name))], key=lambda need: need.resource)
        return replace(spec, options=replace(spec.options, resources=tuple(needs)))
    return spec

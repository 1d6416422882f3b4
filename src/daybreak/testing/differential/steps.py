"""The steps of a story. A step names jobs and leases by number, and the player resolves the numbers when it reaches the
step. So a story stays playable when hypothesis leaves steps out to shorten a failing one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Literal

import msgspec

from daybreak.core.model import Batching, Caching, Gate, Health, Options, Outcome, QueueSettings, ResourceSettings
from daybreak.store.protocol import Action, Filter

Which = Literal["open", "lost", "any"]


@dataclass(frozen=True, slots=True, repr=False)
class Sketch:
    """A job to submit. `again` submits under the id of an earlier job. One with a `holder` is a lock: of the rest only
    its priority counts, and what it needs."""

    queue: str
    task: tuple[str, int]
    priority: int
    delay: timedelta | None
    run_in: timedelta | None
    key: tuple[str, str] | None
    unique: tuple[str, str] | None
    options: Options
    belongs: tuple[str | None, str | None, tuple[str, ...]]
    again: int | None
    holder: str | None
    batch: str | None = None
    flight: tuple[str, Caching] | None = None

    def __repr__(self) -> str:
        """Only the fields that differ from their defaults, so that a failing story is readable."""
        said = {field.name: getattr(self, field.name) for field in fields(self)} | {
            "options": msgspec.to_builtins(self.options)
        }
        return f"Sketch({', '.join(f'{name}={value!r}' for name, value in said.items() if value)})"


@dataclass(frozen=True, slots=True)
class PutSketch:
    """A record to write; `expect` says how the writer came to the revision it expects."""

    name: str
    value: bytes | None
    expect: str
    tells: str = ""
    inserts: tuple[Sketch, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimSketch:
    worker: str
    queues: tuple[str, ...]
    served: tuple[int, ...]
    tasks: frozenset[tuple[str, int]] | None
    limit: int
    lease_for: timedelta
    begins: int | None = None
    job: int | None = None
    batching: Batching | None = None


@dataclass(frozen=True, slots=True)
class End:
    """The end of a lease: of the open ones, of those that were `lost` to someone else, or of `any` ever given."""

    lease: int
    which: Which
    outcome: Outcome
    inserts: tuple[Sketch, ...]
    puts: tuple[PutSketch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`wait` is the time that passes before the step."""

    wait: timedelta = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing(Step):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit(Step):
    jobs: tuple[Sketch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Step):
    ends: tuple[End, ...] = ()
    jobs: tuple[Sketch, ...] = ()
    puts: tuple[PutSketch, ...] = ()
    claim: ClaimSketch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Step):
    leases: tuple[tuple[int, Which], ...]
    lease_for: timedelta
    progress: float | None
    checkpoint: bytes | None
    alone: bool | None
    begun: bool | None = None
    detach: bool = False
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver(Step):
    watched_for: timedelta
    limit: int
    lease_for: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance(Step):
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Step):
    """A person's change to some jobs; the numbers count from the latest, and one job is always unknown."""

    action: Action
    jobs: tuple[int, ...]
    priority: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskHolders(Step):
    """A person's request about jobs that run."""

    action: Action
    leases: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeAll(Step):
    """A bulk change in chunks; `meanwhile` is submitted after the first."""

    action: Action
    where: Filter
    limit: int
    priority: int | None
    meanwhile: tuple[Sketch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clean(Step):
    limit: int
    events_for: timedelta
    keys_for: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget(Step):
    """Forget known results: of these flights, of a task, or of all."""

    flights: tuple[str, ...]
    task: str | None
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(Step):
    puts: tuple[PutSketch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configure(Step):
    queue: str
    settings: QueueSettings | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provide(Step):
    resource: str
    settings: ResourceSettings | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shut(Step):
    resource: str
    gate: Gate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spare(Step):
    resource: str
    health: Health | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(Step):
    where: Filter
    limit: int
    cursor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopen(Step):
    pass

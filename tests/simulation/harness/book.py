"""All jobs as the history tells of them, and what was found wrong on the way."""

from __future__ import annotations

from dataclasses import dataclass, field

from daybreak.core.model import DEFAULT_QUEUE, JobSpec, QueueSettings, State
from harness.history import Commit, Held, History, JobRun
from harness.tracked import Tracked


@dataclass
class Known:
    """A result that a flight has: of which job, and until when it may be used."""

    job: str
    result: bytes | None
    until: int | None


@dataclass
class Flight:
    """What the events so far say of a flight. `awaited` are the jobs whose next event must say where they belong."""

    leader: str | None = None
    known: Known | None = None
    awaited: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Violation:
    """A broken promise: which one, of which job, and by which events."""

    invariant: str
    job: str
    what: str
    events: str = ""

    def __str__(self) -> str:
        return (
            f"{self.invariant}: {self.what}"
            + (f" [job {self.job}]" if self.job else "")
            + (f"\n    events: {self.events}" if self.events else "")
        )


@dataclass
class Book:
    history: History
    jobs: dict[str, Tracked] = field(default_factory=dict)
    by_seq: dict[int, Tracked] = field(default_factory=dict)
    gone: dict[str, list[Tracked]] = field(default_factory=dict)
    keys: dict[str, JobSpec] = field(default_factory=dict)
    settings: dict[str, QueueSettings] = field(default_factory=dict)
    retuned: set[str] = field(default_factory=set)
    violations: list[Violation] = field(default_factory=list)
    at: int = 0
    slots: int = 0
    limits: dict[str, int] = field(default_factory=dict)
    flights: dict[str, Flight] = field(default_factory=dict)
    runs_by_lease: dict[Held, JobRun] | None = None

    def queue(self, name: str) -> QueueSettings:
        return self.settings.get(name, DEFAULT_QUEUE)

    def in_state(self, queue: str, state: State) -> list[Tracked]:
        return [job for job in self.jobs.values() if job.state is state and job.queue == queue]

    def drop(self, job: Tracked) -> None:
        del self.jobs[job.id]
        self.by_seq.pop(job.seq, None)
        self.gone.setdefault(job.id, []).append(job)

    def free_keys(self, job: Tracked) -> None:
        """A person has removed it: its key may stand for another job."""
        if job.spec.key is not None and self.keys[job.spec.key].id == job.id:
            del self.keys[job.spec.key]

    def blame(self, invariant: str, job: Tracked | str, what: str, commit: Commit | None = None) -> None:
        name, events = job if isinstance(job, str) else job.id, ""
        if isinstance(job, Tracked):
            events = " ".join(f"{e.n}:{e.kind}{f'/f{e.fence}' if e.fence else ''}({e.by})" for e in job.events[-12:])
        if commit is not None:
            what = f"{what} (by {commit.call.process}'s {commit.call.op} #{commit.call.n} at {commit.at / 1e6:.6f})"
        self.violations.append(Violation(invariant, name, what, events))

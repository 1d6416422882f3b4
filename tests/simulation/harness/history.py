"""What happened, as nobody inside the system can see it: every call, every commit, every handler, every fault."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from daybreak.core.events import Event
from daybreak.core.model import Lease
from daybreak.worker.wire import Work
from harness.world import SimWorld

Phase = Literal["ok", "fail", "unknown"]
Held = tuple[
    int, int
]  # a lease by seq and fence: a job that was removed and submitted again starts with the old fences

_encode = msgspec.json.Encoder(order="deterministic", enc_hook=repr).encode


@dataclass(slots=True)
class Call:
    """One request as its sender saw it. `phase` is None while, or when, no answer came."""

    n: int
    process: str
    op: str
    request: Any
    invoked: int
    phase: Phase | None = None
    answer: Any = None
    ended: int | None = None
    after: int = 0  # how many commits there were when it was sent, and when it ended
    before: int | None = None


@dataclass(slots=True)
class Commit:
    """One request as the store performed it, whether or not the answer arrived; in the order of performing."""

    at: int
    wall: int
    call: Call
    answer: Any
    events: list[Event]
    used: dict[str, int] | None = None  # the slots of resources in use after it, if the story limits any


@dataclass(slots=True)
class JobRun:
    """A job that ran in a child, as it really went. `beside` ran there when it began.

    `ended` is the status that the child reported; "unreported" if it died before that; "crashed" or "killed" if the
    child died while the job ran."""

    worker: str
    child: str
    work: Work
    after: int  # how many commits there were
    beside: tuple[Held, ...]
    ended: str | None = None
    was_alone: bool = False
    ended_after: int | None = None  # how many commits there were then

    @property
    def held(self) -> Held:
        return (self.work.seq, self.work.fence)


@dataclass(slots=True)
class Window:
    """A time in which nobody could reach the store."""

    start: int
    end: int
    what: str


@dataclass(slots=True)
class History:
    world: SimWorld
    calls: list[Call] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    outcomes: dict[Held, str] = field(default_factory=dict)
    runs: list[JobRun] = field(default_factory=list)
    batches: list[list[Held]] = field(default_factory=list)  # the jobs of each call of several that a child began
    stops: list[tuple[int, int, str]] = field(default_factory=list)
    freezes: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    crashes: list[tuple[int, int, str]] = field(default_factory=list)
    followed: list[Event] = field(default_factory=list)
    quiet_from: int | None = None
    lines: list[tuple[Any, ...]] = field(default_factory=list)

    def invoke(self, process: str, op: str, request: Any) -> Call:
        call = Call(len(self.calls), process, op, request, self.world.steady(), after=len(self.commits))
        self.calls.append(call)
        self.lines.append((call.invoked, process, call.n, op, "invoke", request))
        return call

    def end(self, call: Call, phase: Phase, answer: Any) -> None:
        call.phase, call.answer, call.ended, call.before = phase, answer, self.world.steady(), len(self.commits)
        self.lines.append((call.ended, call.process, call.n, call.op, phase, answer))

    def commit(self, call: Call, answer: Any, events: list[Event], wall: int) -> Commit:
        commit = Commit(self.world.steady(), wall, call, answer, events)
        self.commits.append(commit)
        self.lines.append((commit.at, "store", call.n, call.op, "commit", answer, events))
        return commit

    def run_starts(self, worker: str, child: str, work: Work, beside: tuple[Held, ...]) -> JobRun:
        run = JobRun(worker, child, work, len(self.commits), beside)
        self.runs.append(run)
        self.note(worker, "job starts", work.job, work.fence, child)
        return run

    def run_ends(self, run: JobRun, how: str, *, was_alone: bool) -> None:
        run.ended, run.was_alone, run.ended_after = how, was_alone, len(self.commits)
        self.note(run.worker, "job ends", run.work.job, run.work.fence, how)

    def outcome(self, worker: str, lease: Lease, outcome: str) -> None:
        """What a supervisor says of a lease that it held."""
        self.outcomes[lease.seq, lease.fence] = outcome
        self.note(worker, "outcome", lease.job, lease.fence, outcome)

    def stop(self, process: str) -> None:
        """A worker was asked to stop, and has done so."""
        self.stops.append((self.world.steady(), len(self.commits), process))
        self.note(process, "has stopped")

    def freeze(self, process: str, seconds: float) -> None:
        now = self.world.steady()
        self.freezes.setdefault(process, []).append((now, now + round(seconds * 1e6)))
        self.note(process, "freezes", round(seconds, 6))

    def crash(self, process: str) -> None:
        self.crashes.append((self.world.steady(), len(self.commits), process))
        self.note(process, "crashes")

    def note(self, who: str, what: str, *more: Any) -> None:
        self.lines.append((self.world.steady(), who, None, what, "note", *more))

    def digest(self) -> str:
        """Equal digests mean equal stories, to the last byte."""
        digest = hashlib.blake2b(digest_size=16)
        for line in self.lines:
            digest.update(_encode(line))
        for event in self.followed:
            digest.update(_encode(event))
        return digest.hexdigest()

    def story(self, job: str | None = None) -> list[str]:
        """The lines, or those that mention a job, to be read by a person."""
        found = []
        for at, who, n, what, phase, *more in self.lines:
            text = " ".join(_encode(part).decode() for part in more)
            if job is None or (job in text and what != "audit"):
                found.append(
                    f"{at / 1e6:12.6f} {who:<12} {'' if n is None else n:>5} {what:<16} {phase:<8} {text[:1500]}"
                )
        return found

"""The async client: all operations on jobs and queues, for any store."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar, Unpack, get_args

import msgspec

from daybreak import telemetry, values
from daybreak.client.coalescer import Coalescer
from daybreak.client.duration_stats import DurationStats
from daybreak.client.finish import Finished, FinishedWith, extend, finish
from daybreak.client.job_logs import JobLogs, delete_logs, read_logs
from daybreak.client.job_stacks import JobStack, ask_for_stack
from daybreak.core.errors import (
    BadInput,
    CursorExpired,
    JobNotFound,
    KeyConflict,
    KeySpent,
    OutcomeUnknown,
    QueueFull,
    RecordChanged,
    StoreUnavailable,
    UniqueConflict,
    Unsupported,
)
from daybreak.core.events import Event, ends_job
from daybreak.core.model import (
    DEFAULT_OPTIONS,
    DEFAULT_QUEUE,
    WAITING,
    Job,
    JobSpec,
    Options,
    Put,
    QueueSettings,
    Reason,
    State,
)
from daybreak.core.units import duration, priority
from daybreak.policy.admit import admit, check_name, digest
from daybreak.policy.parse_options import SubmitOptions, build_spec
from daybreak.store.protocol import (
    EVENTS_TOPIC,
    LATEST,
    Action,
    Amend,
    Amendment,
    Filter,
    Inserted,
    InsertsNow,
    InsertsWithin,
    Page,
    Position,
    Query,
    Store,
    Tally,
    Verdict,
    Watch,
    job_topic,
)
from daybreak.system import patience
from daybreak.system.ports import Ids, RealWorld, World
from daybreak.tasks.options import check_submit_options
from daybreak.telemetry import submit_spans
from daybreak.telemetry.submit_spans import SubmitSpan

BULK: Final = 1000
RETRY_PAUSE: Final = timedelta(milliseconds=50)
PATIENCE: Final = patience.PATIENCE

T = TypeVar("T")


class Client:
    """One caller's view of a store. `by` is written into every change that this client makes.

    `patience` limits the time of every call. If it runs out while a call is under way, OutcomeUnknown means that the
    call was sent but not answered, and StoreUnavailable that it was not sent. Submits are repeated within the patience
    while the store is unreachable; other calls are made once. With a patience of zero, a submit is also tried once,
    and its time limit is the default patience."""

    def __init__(
        self, store: Store, *, by: str = "", world: World | None = None, patience: timedelta = PATIENCE
    ) -> None:
        self.store = store
        self.by = by
        self._world = world or RealWorld()
        self.patience = patience
        self._repeats = patience > timedelta()
        self._patience = (patience if self._repeats else PATIENCE).total_seconds()
        self._new_id = Ids(self._world)
        self._submit = Coalescer(self._insert, make_error=self._timeout_error)
        self._admitted: JobSpec | None = None  # the template that was checked last
        self.durations = DurationStats(store, self._world)
        self.on_changed_code: Callable[[Sequence[JobSpec], Sequence[Inserted]], None] = telemetry.changed_code

    # -- submit --------------------------------------------------------------------------------------------------------

    def spec(
        self,
        task: str,
        args: Mapping[str, Any] | None = None,
        *,
        version: int = 1,
        defaults: Options = DEFAULT_OPTIONS,
        **options: Unpack[SubmitOptions],
    ) -> JobSpec:
        """A job with these options, ready to be submitted. `defaults` are the task's own options."""
        check_submit_options(options)
        spec = build_spec(
            task,
            b"{}" if not args else values.encode(dict(args), "args"),
            options,
            new_id=self._new_id(),
            by=self.by,
            version=version,
            defaults=defaults,
        )
        if spec.key is None:
            return spec
        return msgspec.structs.replace(spec, digest=digest(spec))

    async def submit(
        self,
        task: str | JobSpec,
        args: Mapping[str, Any] | None = None,
        *,
        version: int = 1,
        **options: Unpack[SubmitOptions],
    ) -> str:
        """Submit a job and return its id. The job is durable when this returns. If its key or unique name is in use,
        the id is that of the earlier job. Raises QueueFull, KeyConflict, KeySpent or UniqueConflict if the job is
        refused."""
        spec = task if isinstance(task, JobSpec) else self.spec(task, args, version=version, **options)
        return accepted_id(spec, await self.insert(spec))

    async def insert(self, spec: JobSpec) -> Inserted:
        """As `submit`, but returns the store's answer. `accepted_id` turns it into an id or an error."""
        spec = self._admit(spec)
        if not submit_spans.is_on():
            return await self._submit(spec, patience.of(self._patience))
        with SubmitSpan([spec]) as [traced]:
            return await self._submit(traced, patience.of(self._patience))

    def submit_now(self, spec: JobSpec, store: InsertsNow, like: JobSpec | None = None) -> str:
        """Submit from a thread that may block, without an event loop. `like` is a template that differs from the spec
        only in its id and its checked arguments; the template is checked once, instead of every spec."""
        if like is None:
            spec = self._admit(spec)
        elif like is not self._admitted:
            self._admit(like)
            self._admitted = like
        if not submit_spans.is_on():
            [answer] = answers = store.insert_now([spec])
        else:
            with SubmitSpan([spec]) as traced:
                [answer] = answers = store.insert_now(traced)
        if answer.evicted:
            telemetry.shed([spec], answers)
        if answer.code:
            self.on_changed_code([spec], answers)
        return accepted_id(spec, answer)

    def submit_within(self, specs: Sequence[JobSpec], connection: object) -> list[str]:
        """Submit in the caller's own transaction. The jobs exist once it has committed."""
        within, admitted = self._within(), [self._admit(spec) for spec in specs]
        if not submit_spans.is_on():
            return within.insert_within(connection, admitted)
        with SubmitSpan(admitted) as traced:
            return within.insert_within(connection, traced)

    async def submit_within_async(self, specs: Sequence[JobSpec], connection: object) -> list[str]:
        within, admitted = self._within(), [self._admit(spec) for spec in specs]
        if not submit_spans.is_on():
            return await within.insert_within_async(connection, admitted)
        with SubmitSpan(admitted) as traced:
            return await within.insert_within_async(connection, traced)

    def _within(self) -> InsertsWithin:
        if not isinstance(self.store, InsertsWithin):
            raise Unsupported(
                f"a job can be submitted in your own transaction only if the store is in the same PostgreSQL database; "
                f"this store is {self.store.traits.name}"
            )
        return self.store

    def _admit(self, spec: JobSpec) -> JobSpec:
        admit(spec, self.store.traits.features)
        # A spec that was built by hand may have a key but no digest. Without one, all content would count as equal.
        return msgspec.structs.replace(spec, digest=digest(spec)) if spec.key is not None and not spec.digest else spec

    async def submit_many(self, specs: Iterable[JobSpec]) -> list[Inserted]:
        """Submit in bulk. Each job has its own answer: a refused job does not affect the others."""
        return await self.submit_like(None, [self._admit(spec) for spec in specs])

    async def submit_like(self, template: JobSpec | None, admitted: list[JobSpec]) -> list[Inserted]:
        """Submit jobs that differ from a valid template only in their ids and their checked arguments."""
        if template is not None:
            admit(template, self.store.traits.features)
        if not submit_spans.is_on():
            return await self._insert_all(admitted)
        with SubmitSpan(admitted) as traced:
            return await self._insert_all(traced)

    async def _insert_all(self, specs: list[JobSpec]) -> list[Inserted]:
        answers: list[Inserted] = []
        for start in range(0, len(specs), BULK):
            answers += await self._insert(specs[start : start + BULK], patience.of(self._patience))
        return answers

    async def _insert(self, specs: list[JobSpec], within: float) -> list[Inserted]:
        """Insert, and try again while the store is unreachable. The caller chooses the ids, so repeating is safe."""
        world, pause = self._world, RETRY_PAUSE.total_seconds()
        give_up = world.steady() + within * 1e6
        unknown: OutcomeUnknown | None = None
        while True:
            left = (give_up - world.steady()) / 1e6
            try:
                # The batch has its own time limit, not that of the caller that started it.
                with patience.ending_at(time.monotonic() + left):
                    answers = await self.store.insert(specs)
            except StoreUnavailable as error:
                if isinstance(error, OutcomeUnknown):
                    unknown = error
                left = (give_up - world.steady()) / 1e6
                if left <= 0 or not self._repeats:
                    # If one try was sent but not answered, it may have succeeded, whatever happened to later tries.
                    raise unknown or error from None
                # Not so long that the last try has no time left.
                await world.sleep(timedelta(seconds=min(pause * (0.5 + world.chance.random()), max(left / 2, 0.05))))
                pause = min(pause * 2, 2.0)
            else:
                telemetry.shed(specs, answers)
                if any(answer.code for answer in answers):
                    self.on_changed_code(specs, answers)
                return answers

    async def check_keys(self, specs: Sequence[JobSpec]) -> None:
        """Raise KeyConflict or KeySpent for the first job whose key is in use for other content, or spent. Nothing is
        written."""
        keyed = [(row, spec) for row, spec in enumerate(specs) if spec.key is not None]
        for start in range(0, len(keyed), BULK):
            chunk = keyed[start : start + BULK]
            found = await self._call(self.store.known_keys([spec.key or "" for _, spec in chunk]))
            for (row, spec), known in zip(chunk, found, strict=True):
                if known is None or known.job == spec.id:
                    continue
                if known.digest != spec.digest:
                    raise KeyConflict(spec.key or "", known.job, f"row {row} was refused, nothing was submitted")
                if known.is_spent:
                    raise KeySpent(spec.key or "", known.job, f"row {row} was refused, nothing was submitted")

    def _timeout_error(self, was_sent: bool) -> StoreUnavailable:
        name, waited = self.store.traits.name, f"{self._patience:.3g} s"
        if was_sent:
            return OutcomeUnknown(
                f"the {name} store did not answer within {waited}, so it is unknown whether the jobs were accepted; "
                "try again: repeating is safe"
            )
        return StoreUnavailable(
            f"the {name} store cannot be reached: it is still busy with earlier calls after {waited}, and nothing was "
            "sent; try again later"
        )

    def chance(self) -> float:
        """A random number, for jitter."""
        return self._world.chance.random()

    async def call(self, call: Coroutine[Any, Any, T]) -> T:
        """Await a call of the store within the patience."""
        return await self._call(call)

    async def _call(self, call: Coroutine[Any, Any, T]) -> T:
        with patience.within(self._patience):
            return await call

    # -- read ----------------------------------------------------------------------------------------------------------

    def new_id(self) -> str:
        """The id of a new job."""
        return self._new_id()

    def wall(self) -> int:
        """The wall clock of this client, in microseconds. For display only."""
        return self._world.wall()

    async def get(self, job: str) -> Job:
        [found] = await self._call(self.store.get([job]))
        if found is None:
            raise JobNotFound(job)
        return found

    async def find(self, *, limit: int = 100, cursor: str | None = None, **where: Any) -> Page:
        if not 1 <= limit <= 1000:
            raise BadInput(f"limit={limit}: a page holds 1 to 1000 jobs")
        return await self._call(self.store.find(Query(filter=filter_of(**where), limit=limit, cursor=cursor)))

    async def find_all(self, **where: Any) -> AsyncIterator[Job]:
        cursor = None
        while True:
            page = await self.find(limit=500, cursor=cursor, **where)
            for job in page.jobs:
                yield job
            if (cursor := page.cursor) is None:
                return

    async def count(self, **where: Any) -> dict[State, int]:
        """The number of jobs in each state, 0 included."""
        counts = dict.fromkeys(State, 0)
        for tally in await self.tallies(**where):
            counts[tally.state] += tally.n
        return counts

    async def tallies(self, **where: Any) -> list[Tally]:
        return await self._call(self.store.count(filter_of(**where)))

    async def position(self, job: str) -> Position | None:
        return await self._call(self.store.position(job))

    async def history(self, job: str) -> list[Event]:
        if not (found := await self._call(self.store.history(job))):
            raise JobNotFound(job)
        return found

    async def events(
        self, after: str | None = LATEST, *, poll: timedelta = timedelta(seconds=1)
    ) -> AsyncIterator[tuple[Event, str]]:
        """Follow events forever, each with the cursor behind it. None starts with the oldest stored event.

        Continuing from a cursor repeats no event and misses none."""
        watch = self.store.watch([EVENTS_TOPIC])
        try:
            cursor = after
            while True:
                feed = await self._call(self.store.events(cursor))
                for event, behind in zip(feed.events, feed.cursors, strict=True):
                    yield event, behind
                cursor = feed.cursor
                if not feed.events:
                    await watch.wait(poll)
        finally:
            watch.close()

    async def wait(self, job: str, timeout: timedelta | None = None) -> Job:  # noqa: ASYNC109
        """Wait until the job is final. Raises TimeoutError after `timeout`."""
        async with asyncio.timeout(None if timeout is None else timeout.total_seconds()):
            # A job whose result was known is final already, and needs no watch.
            if (found := await self.get(job)).is_final:
                return found
            watch = self.store.watch([job_topic(job)])
            try:
                while not (found := await self.get(job)).is_final:
                    await watch.wait(timedelta(seconds=5))
                return found
            finally:
                watch.close()

    async def wait_for_change(
        self,
        watch: Watch,
        longest: timedelta,
        *,
        what: str,  # noqa: ARG002
        is_limited: bool,  # noqa: ARG002
    ) -> None:
        """Wait until something may have changed. Inline mode says `what` would be waited for in vain instead, unless
        the caller's patience is limited."""
        await watch.wait(longest)

    async def finals(self, jobs: Iterable[str]) -> AsyncIterator[Job]:
        """Each of these jobs when it is final, in that order. All of them share one watch."""
        left = dict.fromkeys(jobs)
        watch = self.store.watch([EVENTS_TOPIC])
        try:
            while left:
                # Read the cursor first, so that jobs that end while we read them are in the feed.
                cursor: str = (await self._call(self.store.events(LATEST))).cursor
                async for job in self._finals_of(list(left)):
                    del left[job.id]
                    yield job
                with contextlib.suppress(CursorExpired):  # this reader was too slow: read all jobs again
                    while left:
                        feed = await self._call(self.store.events(cursor))
                        cursor = feed.cursor
                        ended = [event.job for event in feed.events if ends_job(event) and event.job in left]
                        async for job in self._finals_of(ended):
                            if job.id in left:
                                del left[job.id]
                                yield job
                        if not feed.events and left:
                            await watch.wait(timedelta(seconds=5))
        finally:
            watch.close()

    async def _finals_of(self, jobs: list[str]) -> AsyncIterator[Job]:
        for start in range(0, len(jobs), BULK):
            chunk = jobs[start : start + BULK]
            for id_, job in zip(chunk, await self._call(self.store.get(chunk)), strict=True):
                if job is None:
                    raise JobNotFound(id_)
                if job.is_final:
                    yield job

    # -- change --------------------------------------------------------------------------------------------------------

    async def cancel(self, job: str, *, note: str = "") -> Amendment:
        """`done`: the job will never start. `requested`: it is running, was asked to stop, and will end cancelled."""
        return await self._amend_one("cancel", job, note=note)

    async def suspend(self, job: str, *, note: str = "") -> Amendment:
        return await self._amend_one("suspend", job, note=note)

    async def resume(self, job: str) -> Amendment:
        return await self._amend_one("resume", job)

    async def start_now(self, job: str, *, note: str = "") -> Amendment:
        """Queue a scheduled job before its time, or a failed attempt before its delay is over."""
        return await self._amend_one("start", job, note=note)

    async def finish(
        self, job: str, outcome: FinishedWith, *, fence: int | None = None, by: str | None = None
    ) -> Finished:
        """End the attempt with this fence, which goes on elsewhere; without a fence, the one that is detached now. The
        same outcome again answers as the first time; AttemptOver if the attempt ended otherwise."""
        return await finish(self, job, outcome, fence=fence, by=by)

    async def extend(self, job: str, deadline: timedelta, *, fence: int | None = None, by: str | None = None) -> Job:
        """Give a detached job a new deadline, counted from now."""
        return await extend(self, job, deadline, fence=fence, by=by)

    async def retry(self, job: str, *, note: str = "") -> Amendment:
        """Run a finished job again, with all its attempts. Its history continues."""
        return await self._amend_one("retry", job, note=note)

    async def remove(self, job: str) -> Amendment:
        """Delete a finished job and its log. If this ends between the two, the janitor deletes the log."""
        amendment = await self._amend_one("remove", job)
        if amendment.verdict == "done":
            await self._call(delete_logs(self.store, [job]))
        return amendment

    async def logs(self, job: str, *, attempt: int | None = None, after: str = "") -> JobLogs:
        """What a job has printed and logged."""
        return await self._call(read_logs(self.store, job, attempt=attempt, after=after))

    async def stack(self, job: str) -> JobStack:
        """Where a running job is now: its stack and its memory, as its worker answers. Raises WrongState if it is not
        running."""
        return await self._call(ask_for_stack(self.store, self._world, await self.get(job), lambda: self.get(job)))

    async def reprioritise(self, job: str, to: object) -> Amendment:
        """Change the priority of a waiting job. Within the new priority it is ordered by its original submit time."""
        return await self._amend_one("rerank", job, priority=priority(to))

    async def amend_all(self, action: Action, *, to: object = None, note: str = "", **where: Any) -> int:
        """Change all jobs that match, in bounded chunks. Returns how many were changed or asked to change."""
        if action not in get_args(Action):
            raise BadInput(f"no action named {action!r}: write one of {', '.join(get_args(Action))}")
        wanted = Amend(
            action=action,
            by=self.by,
            filter=filter_of(**where),
            priority=None if to is None else priority(to),
            note=note,
        )
        changed = 0
        while True:
            amended = await self._call(self.store.amend(wanted))
            changed += len(amended.amendments)
            if amended.cursor is None:
                return changed
            wanted = msgspec.structs.replace(wanted, cursor=amended.cursor)

    async def _amend_one(self, action: Action, job: str, *, priority: int | None = None, note: str = "") -> Amendment:
        amended = await self._call(
            self.store.amend(Amend(action=action, by=self.by, jobs=(job,), priority=priority, note=note))
        )
        if amended.amendments[0].verdict == "missing":
            raise JobNotFound(job)
        return amended.amendments[0]

    # -- queues --------------------------------------------------------------------------------------------------------

    async def queue(self, name: str) -> QueueSettings:
        return (await self._queue(name))[0]

    async def _queue(self, name: str) -> tuple[QueueSettings, int]:
        for record in await self._call(self.store.records("queue", name)):
            return msgspec.json.decode(record.value, type=QueueSettings), record.revision
        return DEFAULT_QUEUE, 0

    async def set_queue(self, name: str, **changes: Any) -> QueueSettings:
        """Change a queue while it is in use: paused, max_running, capacity, when_full, discipline, patience, weight.

        A new discipline re-ranks the waiting jobs in chunks. If that is interrupted, the janitor continues it."""
        check_name("queue", name)
        for _ in range(20):
            before, revision = await self._queue(name)
            after = _settings(name, before, changes)
            reorders = (after.discipline, after.patience) != (before.discipline, before.patience)
            if reorders:
                after = msgspec.structs.replace(after, ranked=False)
            [record] = await self._call(
                self.store.put([Put(kind="queue", name=name, value=msgspec.json.encode(after), expect=revision)])
            )
            if record is not None:
                return await self.rerank_queue(name) if reorders else after
        raise RecordChanged("queue", name)

    async def rerank_queue(self, name: str) -> QueueSettings:
        """Re-rank the waiting jobs of a queue by its current discipline, then record that in its settings."""
        while True:
            before, revision = await self._queue(name)
            await self.amend_all("rerank", queue=name, state=WAITING)
            after = msgspec.structs.replace(before, ranked=True)
            put = Put(kind="queue", name=name, value=msgspec.json.encode(after), expect=revision)
            if (await self._call(self.store.put([put])))[0] is not None:
                return after

    async def pause(self, queue: str) -> QueueSettings:
        """Stop claims from the queue at once. Running jobs continue."""
        return await self.set_queue(queue, paused=True)

    async def unpause(self, queue: str) -> QueueSettings:
        return await self.set_queue(queue, paused=False)


def filter_of(*, state: object = None, **where: Any) -> Filter:
    """A filter from keyword arguments. `state` is one state or several; the others are fields of Filter."""
    fields = set(Filter.__struct_fields__) - {"states"}
    if unknown := set(where) - fields:
        raise BadInput(f"no filter named {', '.join(sorted(unknown))}: write state, {', '.join(sorted(fields))}")
    states = () if state is None else (state,) if isinstance(state, str) else tuple(state)  # type: ignore[arg-type]
    if unknown := {str(s) for s in states} - set(State):
        raise BadInput(f"no state named {', '.join(sorted(unknown))}: write one of {', '.join(State)}")
    if (reason := where.get("reason")) is not None and reason not in set(Reason):
        raise BadInput(f"no reason named {reason!r}: write one of {', '.join(Reason)}")
    if (level := where.get("priority")) is not None:
        where["priority"] = priority(level)
    return Filter(states=frozenset(State(s) for s in states), **where)


def accepted_id(spec: JobSpec, answer: Inserted) -> str:
    """The id of the new or earlier job. Raises the error that says why the submit was refused."""
    match answer.verdict:
        case Verdict.NEW:
            return answer.job
        case Verdict.FULL:
            raise QueueFull(spec.queue, resources=[need.resource for need in spec.options.resources])
        case Verdict.CONFLICT if answer.same == "unique":
            raise UniqueConflict(spec.unique or "", answer.job)
        case Verdict.CONFLICT:
            raise KeyConflict(spec.key or "", answer.job)
        case Verdict.SPENT:
            raise KeySpent(spec.key or "", answer.job)
        case _:
            return answer.job


def _settings(name: str, before: QueueSettings, changes: Mapping[str, Any]) -> QueueSettings:
    if unknown := set(changes) - (set(QueueSettings.__struct_fields__) - {"ranked"}):
        known = ", ".join(field for field in QueueSettings.__struct_fields__ if field != "ranked")
        raise BadInput(f"queue {name!r} has no setting {', '.join(sorted(unknown))}: write {known}")
    if "patience" in changes:
        changes = {**changes, "patience": duration(changes["patience"], "patience")}
    try:
        after = msgspec.convert({**msgspec.structs.asdict(before), **changes}, QueueSettings)
    except msgspec.ValidationError as error:
        raise BadInput(f"queue {name!r}: {error}") from None
    for what, least in (("max_running", 0), ("capacity", 0), ("weight", 1)):
        value = getattr(after, what)
        if value is not None and not least <= value <= 2**31:
            raise BadInput(f"queue {name!r}: {what}={value} must be at least {least}")
    if after.patience <= timedelta():
        raise BadInput(f"queue {name!r}: patience must be longer than 0")
    return after

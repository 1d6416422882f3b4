"""The async face: everything one can ask of jobs and queues, over any store."""

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
from daybreak.core.events import Event
from daybreak.core.model import (
    DEFAULT_OPTIONS,
    DEFAULT_QUEUE,
    FINAL,
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
    job_topic,
)
from daybreak.system import patience
from daybreak.system.ports import Ids, RealWorld, World
from daybreak.tasks.options import check_submit_options

BULK: Final = 1000
RETRY_PAUSE: Final = timedelta(milliseconds=50)
PATIENCE: Final = patience.PATIENCE

T = TypeVar("T")


class Client:
    """One caller's view of a store. `by` is written into every change this client makes.

    `patience` bounds every call, also one that is under way when it ends: then OutcomeUnknown says that the call was
    sent and not answered, and StoreUnavailable that it was not sent. Submits are repeated within it while the store is
    out of reach; everything else is asked once. With a patience of zero a submit is tried once, too, and has as long as
    by default."""

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
        self._submit = Coalescer(self._insert, late=self._late)
        self._admitted: JobSpec | None = None  # the template that was judged last
        self.learning = DurationStats(store, self._world)
        self.on_known: Callable[[Sequence[JobSpec], Sequence[Inserted]], None] = telemetry.changed_code

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
        """A job with these options, ready to be submitted. `defaults` are the task's options of how a job is run."""
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
        """As `submit`, and answers what the store said; `accepted_id` turns that into an id or an error."""
        return await self._submit(self._admit(spec), patience.of(self._patience))

    def submit_now(self, spec: JobSpec, store: InsertsNow, like: JobSpec | None = None) -> str:
        """Submit from a thread that may be blocked, without an event loop. One that differs from an admissible template
        only in its id and its arguments, which were checked, may name it: the template is judged once."""
        if like is None:
            spec = self._admit(spec)
        elif like is not self._admitted:
            self._admit(like)
            self._admitted = like
        [answer] = answers = store.insert_now([spec])
        if answer.evicted:
            telemetry.shed([spec], answers)
        if answer.code:
            self.on_known([spec], answers)
        return accepted_id(spec, answer)

    def submit_within(self, specs: Sequence[JobSpec], connection: object) -> list[str]:
        """Submit in the caller's own transaction: the ids of jobs that are there once it has committed."""
        return self._within().insert_within(connection, [self._admit(spec) for spec in specs])

    async def submit_within_async(self, specs: Sequence[JobSpec], connection: object) -> list[str]:
        return await self._within().insert_within_async(connection, [self._admit(spec) for spec in specs])

    def _within(self) -> InsertsWithin:
        if not isinstance(self.store, InsertsWithin):
            raise Unsupported(
                f"a job can be submitted in your own transaction only where both are in one database, on PostgreSQL; "
                f"this store is {self.store.traits.name}"
            )
        return self.store

    def _admit(self, spec: JobSpec) -> JobSpec:
        admit(spec, self.store.traits.features)
        # A spec made by hand may have a key and no digest; without one, all content would be the same.
        return msgspec.structs.replace(spec, digest=digest(spec)) if spec.key is not None and not spec.digest else spec

    async def submit_many(self, specs: Iterable[JobSpec]) -> list[Inserted]:
        """Submit in bulk; each answers for itself, so one that is refused sinks no other."""
        return await self.submit_like(None, [self._admit(spec) for spec in specs])

    async def submit_like(self, template: JobSpec | None, admitted: list[JobSpec]) -> list[Inserted]:
        """Submit jobs that differ from an admissible template only in their ids and arguments, which were checked."""
        if template is not None:
            admit(template, self.store.traits.features)
        answers: list[Inserted] = []
        for start in range(0, len(admitted), BULK):
            answers += await self._insert(admitted[start : start + BULK], patience.of(self._patience))
        return answers

    async def _insert(self, specs: list[JobSpec], within: float) -> list[Inserted]:
        """Insert, asking again while the store is out of reach: the ids are ours, so a repeat changes nothing."""
        world, pause = self._world, RETRY_PAUSE.total_seconds()
        give_up = world.steady() + within * 1e6
        unknown: OutcomeUnknown | None = None
        while True:
            left = (give_up - world.steady()) / 1e6
            try:
                # A limit of its own, not that of whichever caller began this batch.
                with patience.ending_at(time.monotonic() + left):
                    answers = await self.store.insert(specs)
            except StoreUnavailable as error:
                if isinstance(error, OutcomeUnknown):
                    unknown = error
                left = (give_up - world.steady()) / 1e6
                if left <= 0 or not self._repeats:
                    # What was sent once may have happened, whatever became of later tries.
                    raise unknown or error from None
                # Never so long that the last try would have no time of its own.
                await world.sleep(timedelta(seconds=min(pause * (0.5 + world.chance.random()), max(left / 2, 0.05))))
                pause = min(pause * 2, 2.0)
            else:
                telemetry.shed(specs, answers)
                if any(answer.code for answer in answers):
                    self.on_known(specs, answers)
                return answers

    async def check_keys(self, specs: Sequence[JobSpec]) -> None:
        """Raise KeyConflict or KeySpent for the first of these jobs whose key is in use for something else, or spent.
        Nothing is written."""
        keyed = [(row, spec) for row, spec in enumerate(specs) if spec.key is not None]
        for start in range(0, len(keyed), BULK):
            chunk = keyed[start : start + BULK]
            found = await self._ask(self.store.known_keys([spec.key or "" for _, spec in chunk]))
            for (row, spec), known in zip(chunk, found, strict=True):
                if known is None or known.job == spec.id:
                    continue
                if known.digest != spec.digest:
                    raise KeyConflict(spec.key or "", known.job, f"row {row} was refused, nothing was submitted")
                if known.is_spent:
                    raise KeySpent(spec.key or "", known.job, f"row {row} was refused, nothing was submitted")

    def _late(self, was_sent: bool) -> StoreUnavailable:
        name, waited = self.store.traits.name, f"{self._patience:.3g} s"
        if was_sent:
            return OutcomeUnknown(
                f"the {name} store did not answer within {waited}, so this may or may not have happened; ask again, to "
                "repeat is safe"
            )
        return StoreUnavailable(
            f"the {name} store cannot be reached: it is still busy with earlier calls after {waited}, and nothing of "
            "this was sent; ask again later"
        )

    async def _ask(self, asked: Coroutine[Any, Any, T]) -> T:
        with patience.within(self._patience):
            return await asked

    # -- look ----------------------------------------------------------------------------------------------------------

    def wall(self) -> int:
        """The time by which this client makes ids, in microseconds; only for showing."""
        return self._world.wall()

    async def get(self, job: str) -> Job:
        [found] = await self._ask(self.store.get([job]))
        if found is None:
            raise JobNotFound(job)
        return found

    async def find(self, *, limit: int = 100, cursor: str | None = None, **where: Any) -> Page:
        if not 1 <= limit <= 1000:
            raise BadInput(f"limit={limit}: a page holds 1 to 1000 jobs")
        return await self._ask(self.store.find(Query(filter=filter_of(**where), limit=limit, cursor=cursor)))

    async def find_all(self, **where: Any) -> AsyncIterator[Job]:
        cursor = None
        while True:
            page = await self.find(limit=500, cursor=cursor, **where)
            for job in page.jobs:
                yield job
            if (cursor := page.cursor) is None:
                return

    async def count(self, **where: Any) -> dict[State, int]:
        """How many jobs there are in each state; states without jobs count 0."""
        counts = dict.fromkeys(State, 0)
        for tally in await self.tallies(**where):
            counts[tally.state] += tally.n
        return counts

    async def tallies(self, **where: Any) -> list[Tally]:
        return await self._ask(self.store.count(filter_of(**where)))

    async def position(self, job: str) -> Position | None:
        return await self._ask(self.store.position(job))

    async def history(self, job: str) -> list[Event]:
        if not (found := await self._ask(self.store.history(job))):
            raise JobNotFound(job)
        return found

    async def events(
        self, after: str | None = LATEST, *, poll: timedelta = timedelta(seconds=1)
    ) -> AsyncIterator[tuple[Event, str]]:
        """Follow events for ever, each with the cursor behind it. None starts with the oldest event that is kept.

        Continuing from a cursor repeats nothing and misses nothing."""
        watch = self.store.watch([EVENTS_TOPIC])
        try:
            cursor = after
            while True:
                feed = await self._ask(self.store.events(cursor))
                for event, behind in zip(feed.events, feed.cursors, strict=True):
                    yield event, behind
                cursor = feed.cursor
                if not feed.events:
                    await watch.wait(poll)
        finally:
            watch.close()

    async def wait(self, job: str, timeout: timedelta | None = None) -> Job:  # noqa: ASYNC109
        """The job once it is final. TimeoutError if that takes longer than `timeout`."""
        watch = self.store.watch([job_topic(job)])
        try:
            async with asyncio.timeout(None if timeout is None else timeout.total_seconds()):
                while not (found := await self.get(job)).is_final:
                    await watch.wait(timedelta(seconds=5))
                return found
        finally:
            watch.close()

    async def finals(self, jobs: Iterable[str]) -> AsyncIterator[Job]:
        """Each of these jobs once it is final, in the order in which they become so; one watch for all of them."""
        left = dict.fromkeys(jobs)
        watch = self.store.watch([EVENTS_TOPIC])
        try:
            while left:
                # The cursor first: what ends between the look and the feed is in the feed.
                cursor: str = (await self._ask(self.store.events(LATEST))).cursor
                async for job in self._finals_of(list(left)):
                    del left[job.id]
                    yield job
                with contextlib.suppress(CursorExpired):  # too slow to follow: look again
                    while left:
                        feed = await self._ask(self.store.events(cursor))
                        cursor = feed.cursor
                        ended = [event.job for event in feed.events if event.state in FINAL and event.job in left]
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
            for id_, job in zip(chunk, await self._ask(self.store.get(chunk)), strict=True):
                if job is None:
                    raise JobNotFound(id_)
                if job.is_final:
                    yield job

    # -- change --------------------------------------------------------------------------------------------------------

    async def cancel(self, job: str, *, note: str = "") -> Amendment:
        """`done`: it will never start. `requested`: it is running, was asked to stop, and will end cancelled."""
        return await self._amend_one("cancel", job, note=note)

    async def suspend(self, job: str, *, note: str = "") -> Amendment:
        return await self._amend_one("suspend", job, note=note)

    async def resume(self, job: str) -> Amendment:
        return await self._amend_one("resume", job)

    async def retry(self, job: str, *, note: str = "") -> Amendment:
        """Run a finished job again, with a fresh budget of attempts; its history goes on."""
        return await self._amend_one("retry", job, note=note)

    async def remove(self, job: str) -> Amendment:
        return await self._amend_one("remove", job)

    async def reprioritise(self, job: str, to: object) -> Amendment:
        """Move a waiting job to another priority, where it stands by its original time of arrival."""
        return await self._amend_one("rerank", job, priority=priority(to))

    async def amend_all(self, action: Action, *, to: object = None, note: str = "", **where: Any) -> int:
        """Change all jobs that match, in bounded chunks; answers how many were changed or asked to."""
        if action not in get_args(Action):
            raise BadInput(f"no action named {action!r}: there are {', '.join(get_args(Action))}")
        wanted = Amend(
            action=action,
            by=self.by,
            filter=filter_of(**where),
            priority=None if to is None else priority(to),
            note=note,
        )
        changed = 0
        while True:
            amended = await self._ask(self.store.amend(wanted))
            changed += len(amended.amendments)
            if amended.cursor is None:
                return changed
            wanted = msgspec.structs.replace(wanted, cursor=amended.cursor)

    async def _amend_one(self, action: Action, job: str, *, priority: int | None = None, note: str = "") -> Amendment:
        amended = await self._ask(
            self.store.amend(Amend(action=action, by=self.by, jobs=(job,), priority=priority, note=note))
        )
        if amended.amendments[0].verdict == "missing":
            raise JobNotFound(job)
        return amended.amendments[0]

    # -- queues --------------------------------------------------------------------------------------------------------

    async def queue(self, name: str) -> QueueSettings:
        return (await self._queue(name))[0]

    async def _queue(self, name: str) -> tuple[QueueSettings, int]:
        for record in await self._ask(self.store.records("queue", name)):
            return msgspec.json.decode(record.value, type=QueueSettings), record.revision
        return DEFAULT_QUEUE, 0

    async def set_queue(self, name: str, **changes: Any) -> QueueSettings:
        """Change a queue while it runs: paused, max_running, capacity, when_full, discipline, patience, weight.

        A new discipline re-ranks what waits, in chunks; if that is interrupted, the janitor goes on with it."""
        check_name("queue", name)
        for _ in range(20):
            before, revision = await self._queue(name)
            after = _settings(name, before, changes)
            reorders = (after.discipline, after.patience) != (before.discipline, before.patience)
            if reorders:
                after = msgspec.structs.replace(after, ranked=False)
            [record] = await self._ask(
                self.store.put([Put(kind="queue", name=name, value=msgspec.json.encode(after), expect=revision)])
            )
            if record is not None:
                return await self.rerank_queue(name) if reorders else after
        raise RecordChanged("queue", name)

    async def rerank_queue(self, name: str) -> QueueSettings:
        """Put the waiting jobs of a queue where its present discipline wants them, then say so in its settings."""
        while True:
            before, revision = await self._queue(name)
            await self.amend_all("rerank", queue=name, state=WAITING)
            after = msgspec.structs.replace(before, ranked=True)
            put = Put(kind="queue", name=name, value=msgspec.json.encode(after), expect=revision)
            if (await self._ask(self.store.put([put])))[0] is not None:
                return after

    async def pause(self, queue: str) -> QueueSettings:
        """Claims from the queue stop at once; what runs goes on."""
        return await self.set_queue(queue, paused=True)

    async def unpause(self, queue: str) -> QueueSettings:
        return await self.set_queue(queue, paused=False)


def filter_of(*, state: object = None, **where: Any) -> Filter:
    """A filter from words: `state` is one state or several; the rest are equal to what is named."""
    fields = set(Filter.__struct_fields__) - {"states"}
    if unknown := set(where) - fields:
        raise BadInput(f"no filter named {', '.join(sorted(unknown))}: there are state, {', '.join(sorted(fields))}")
    states = () if state is None else (state,) if isinstance(state, str) else tuple(state)  # type: ignore[arg-type]
    if unknown := {str(s) for s in states} - set(State):
        raise BadInput(f"no state named {', '.join(sorted(unknown))}: there are {', '.join(State)}")
    if (reason := where.get("reason")) is not None and reason not in set(Reason):
        raise BadInput(f"no reason named {reason!r}: there are {', '.join(Reason)}")
    if (level := where.get("priority")) is not None:
        where["priority"] = priority(level)
    return Filter(states=frozenset(State(s) for s in states), **where)


def accepted_id(spec: JobSpec, answer: Inserted) -> str:
    """The id of the job that stands for a submission, or the error that says why it was refused."""
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
        raise BadInput(f"queue {name!r} has no setting {', '.join(sorted(unknown))}")
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

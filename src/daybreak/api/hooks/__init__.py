"""Hooks: functions that are called when something happens to a job.

An immediate hook is called in the process that caused the event, in a separate thread, so that nothing waits for it
(`hook_thread.py`). A durable hook is called from the store's event feed, at least once per event, by one worker at a
time, and its cursor is kept in the store (`durable.py`)."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import msgspec

from daybreak.api.hooks.hook_thread import CLOSE_TIMEOUT, MAX_WAITING_CALLS, HookThread, call_and_log
from daybreak.api.hooks.registry import Hook, is_same, parse_kinds, parse_words
from daybreak.core import events
from daybreak.core.errors import BadInput
from daybreak.core.events import Event
from daybreak.core.model import Job, JobSpec, Lease, State
from daybreak.core.units import moment
from daybreak.policy.admit import check_name
from daybreak.store.protocol import Inserted, Verdict
from daybreak.system.ports import World

if TYPE_CHECKING:
    from daybreak.client.client import Client
    from daybreak.worker.supervisor.lease_source import Settled

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger("daybreak.hooks")


class ChangedFields(TypedDict, total=False):
    """The values that a change gave to a job, for its event."""

    state: State
    priority: int
    note: str


class Hooks:
    """The hooks of an app. An error raised by a hook is logged and affects nothing else."""

    def __init__(self, world: World, max_waiting: int = MAX_WAITING_CALLS) -> None:
        self.world = world
        self.dropped = 0
        self.inline = False  # for tests: call hooks in the thread that reports the event
        self._hooks: list[Hook] = []
        self._durable: dict[str, Hook] = {}
        self._kinds: frozenset[str] = frozenset()
        self._thread = HookThread("daybreak-hooks", max_waiting)

    def on(self, *kinds: str, durable: bool = False, name: str | None = None) -> Callable[[F], F]:
        """Register a function to be called with every event of these kinds; `*` is every kind."""
        wanted = parse_kinds(kinds, durable=durable)

        def register(function: F) -> F:
            hook = Hook(function, wanted, name or str(getattr(function, "__name__", type(function).__name__)))
            if durable:
                self._add_durable(hook)
            else:
                self._add_immediate(hook)
            return function

        return register

    def on_queue(self, queue: str, *words: str) -> Callable[[F], F]:
        """Register a function to be called with every event of a queue that these words stand for: added, updated,
        removed; `*` is all of them."""
        wanted = parse_words(words)

        def register(function: F) -> F:
            name = str(getattr(function, "__name__", type(function).__name__))
            self._add_immediate(Hook(function, wanted, name, queue))
            return function

        return register

    def _add_immediate(self, hook: Hook) -> None:
        merged = _merge_kinds(self._hooks, hook)
        self._hooks = [*(old for old in self._hooks if not is_same(old, hook)), merged]
        self._kinds = frozenset().union(*(hook.kinds for hook in self._hooks))

    def _add_durable(self, hook: Hook) -> None:
        check_name("hook", hook.name)
        before = self._durable.get(hook.name)
        if before is not None and not is_same(before, hook):
            raise BadInput(
                f"two durable hooks are named {hook.name!r}, and their cursors are stored by name; "
                "give one of them another name with @app.on(..., durable=True, name=...)"
            )
        self._durable[hook.name] = _merge_kinds(self._durable.values(), hook)

    # -- immediate hooks -----------------------------------------------------------------------------------------------

    def submitted(self, spec: JobSpec, job: str) -> None:
        """Report that a submit was accepted. If `job` is not the spec's id, an earlier job answered it: no event."""
        if "submitted" not in self._kinds or job != spec.id:
            return
        now = moment(self.world.wall())
        run_at = spec.run_at if spec.delay is None else now + spec.delay
        state = State.SCHEDULED if run_at is not None and run_at > now else State.QUEUED
        self._notify(events.submitted(spec, state, now, run_at if state is State.SCHEDULED else None))

    async def found_among(self, client: Client, answers: Iterable[Inserted]) -> None:
        """Report those of the submitted jobs that were completed as they were submitted: no worker does."""
        found = [answer.job for answer in answers if answer.verdict is Verdict.CACHED]
        for job in await client.store.get(found) if found and self.wants("completed") else []:
            if job is not None:
                self.found(job)

    def found(self, job: Job) -> None:
        """Report that a job was completed as it was submitted, because its result was known."""
        if "completed" in self._kinds and job.state is State.COMPLETED:
            self.changed("completed", job, by="", state=State.COMPLETED, note=job.note)

    def started(self, lease: Lease) -> None:
        """Report that an attempt started."""
        if "started" not in self._kinds:
            return
        self._notify(
            Event(
                n=0, kind="started", job=lease.job, at=lease.started_at, by=lease.worker, state=State.RUNNING,
                task=lease.spec.task, queue=lease.spec.queue, priority=lease.priority, attempt=lease.attempt,
                fence=lease.fence,
            )
        )  # fmt: skip

    def progressed(self, lease: Lease, fraction: float, message: str) -> None:
        """Report how far an attempt is, once the store has accepted it."""
        if "progress" not in self._kinds:
            return
        self._notify(
            Event(
                n=0, kind="progress", job=lease.job, at=moment(self.world.wall()), by=lease.worker, progress=fraction,
                note=message, task=lease.spec.task, queue=lease.spec.queue,
            )
        )  # fmt: skip

    def settled(self, settled: Settled) -> None:
        """Report that an attempt ended, if the store accepted its settlement."""
        if not self._kinds or not settled.accepted:
            return
        lease, settlement, now = settled.lease, settled.settlement, moment(self.world.wall())
        event = events.settled(settlement, 0, now, None if settlement.delay is None else now + settlement.delay)
        if event.kind in self._kinds:
            self._notify(msgspec.structs.replace(event, task=lease.spec.task, queue=lease.spec.queue))

    def wants(self, kind: str) -> bool:
        """Whether an immediate hook is registered for this kind of event."""
        return kind in self._kinds

    def changed(self, kind: str, job: Job, *, by: str, **fields: Unpack[ChangedFields]) -> None:
        """Report a change that this process made to a job. `job` is the job as it was before."""
        if kind not in self._kinds:
            return
        spec, now = job.spec, moment(self.world.wall())
        self._notify(
            Event(
                n=0, kind=kind, job=job.id, at=now, by=by, task=spec.task, queue=spec.queue, run=spec.run,
                owner=spec.owner, **fields,
            )
        )  # fmt: skip

    def _notify(self, event: Event) -> None:
        for hook in self._hooks:
            if event.kind not in hook.kinds or hook.queue not in (None, event.queue):
                continue
            if self.inline:
                self.call_inline(hook, event)
            elif not self._thread.offer(hook.function, event):
                self._drop()

    def call_inline(self, hook: Hook, event: Event) -> None:
        """Call a hook and wait for its end.

        An async function runs in the hook thread's event loop, because the caller's loop is blocked meanwhile."""
        if inspect.iscoroutinefunction(hook.function):
            self._thread.offer(hook.function, event)
            self._thread.flush(CLOSE_TIMEOUT)
        else:
            call_and_log(hook.function, event, None)

    def _drop(self) -> None:
        self.dropped += 1
        if self.dropped == 1:
            _log.error(
                "hooks are slower than the jobs: %d calls are waiting, and further ones are dropped and only counted "
                "(app.hooks.dropped); make the hook faster, or make it durable, which drops nothing",
                self._thread.max_waiting,
            )

    def flush(self, timeout: timedelta = CLOSE_TIMEOUT) -> bool:
        """Wait until the hooks were called for all events so far. Returns False after `timeout`."""
        return self._thread.flush(timeout)

    def close(self) -> None:
        """Make the waiting calls, then end the thread. A later event starts a new thread."""
        self._thread.close(CLOSE_TIMEOUT)

    # -- durable hooks -------------------------------------------------------------------------------------------------

    @property
    def is_durable(self) -> bool:
        return bool(self._durable)

    @property
    def durable(self) -> list[Hook]:
        return list(self._durable.values())

    async def follow(self, client: Client) -> None:
        """Run the durable hooks until cancelled; of several workers, one at a time runs a given hook."""
        from daybreak.api.hooks.durable import HookFollower  # noqa: PLC0415 - only workers follow

        async with asyncio.TaskGroup() as group:
            for hook in self._durable.values():
                group.create_task(HookFollower(hook, client, self.world).run())


def _merge_kinds(registered: Iterable[Hook], hook: Hook) -> Hook:
    """A function with two decorators is called for the kinds of both."""
    same = [old for old in registered if old.function is hook.function and old[2:] == hook[2:]]
    kinds = (old.kinds for old in same)
    return hook._replace(kinds=hook.kinds.union(*kinds))

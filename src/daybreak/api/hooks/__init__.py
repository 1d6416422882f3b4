"""Functions that are called when something happens to a job.

At once: in the process that made the change, in a thread of their own, so that nothing waits for them (calling.py). Or
durably: from the store's feed, at least once, from a place that is kept beside the jobs, by one worker at a time
(following.py)."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from daybreak.api.hooks.hook_thread import CLOSED_WITHIN, MAX_WAITING_CALLS, Caller, call
from daybreak.api.hooks.registry import Hook, is_same, kinds_of
from daybreak.core import events
from daybreak.core.errors import BadInput
from daybreak.core.events import Event
from daybreak.core.model import JobSpec, Lease, State
from daybreak.core.units import moment
from daybreak.policy.admit import check_name
from daybreak.system.ports import World

if TYPE_CHECKING:
    from daybreak.client.client import Client
    from daybreak.worker.supervisor.lease_source import Settled

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger("daybreak.hooks")


class Hooks:
    """The hooks of an app. Whatever a hook does, nobody else comes to harm: what it raises is logged."""

    def __init__(self, world: World, most: int = MAX_WAITING_CALLS) -> None:
        self.world = world
        self.dropped = 0
        self.in_place = False  # for tests: call in the thread that tells, before it goes on
        self._hooks: list[Hook] = []
        self._durable: dict[str, Hook] = {}
        self._told: frozenset[str] = frozenset()
        self._caller = Caller("daybreak-hooks", most)

    def on(self, *kinds: str, durable: bool = False, name: str | None = None) -> Callable[[F], F]:
        """Call a function with every event of these kinds; `*` is every kind."""
        wanted = kinds_of(kinds, durable=durable)

        def register(function: F) -> F:
            hook = Hook(function, wanted, name or str(getattr(function, "__name__", type(function).__name__)))
            if durable:
                self._add_durable(hook)
            else:
                self._hooks = [*(old for old in self._hooks if not is_same(old, hook)), _joined(self._hooks, hook)]
                self._told = frozenset().union(*(hook.kinds for hook in self._hooks))
            return function

        return register

    def _add_durable(self, hook: Hook) -> None:
        check_name("hook", hook.name)
        before = self._durable.get(hook.name)
        if before is not None and not is_same(before, hook):
            raise BadInput(
                f"two durable hooks are named {hook.name!r}: their places in the feed are kept by name; "
                "give one another with @app.on(..., durable=True, name=...)"
            )
        self._durable[hook.name] = _joined(self._durable.values(), hook)

    # -- at once -------------------------------------------------------------------------------------------------------

    def submitted(self, spec: JobSpec, job: str) -> None:
        """A job was accepted; under another id, it is one that was there before."""
        if "submitted" not in self._told or job != spec.id:
            return
        now = moment(self.world.wall())
        run_at = spec.run_at if spec.delay is None else now + spec.delay
        state = State.SCHEDULED if run_at is not None and run_at > now else State.QUEUED
        self._tell(events.submitted(spec, state, now, run_at if state is State.SCHEDULED else None))

    def began(self, lease: Lease) -> None:
        if "started" not in self._told:
            return
        self._tell(
            Event(
                n=0, kind="started", job=lease.job, at=lease.started_at, by=lease.worker, state=State.RUNNING,
                task=lease.spec.task, queue=lease.spec.queue, priority=lease.priority, attempt=lease.attempt,
                fence=lease.fence,
            )
        )  # fmt: skip

    def settled(self, settled: Settled) -> None:
        """An attempt ended, and the store has accepted how."""
        if not self._told or not settled.accepted:
            return
        lease, settlement, now = settled.lease, settled.settlement, moment(self.world.wall())
        event = events.settled(settlement, 0, now, None if settlement.delay is None else now + settlement.delay)
        if event.kind in self._told:
            self._tell(msgspec.structs.replace(event, task=lease.spec.task, queue=lease.spec.queue))

    def _tell(self, event: Event) -> None:
        for hook in self._hooks:
            if event.kind not in hook.kinds:
                continue
            if self.in_place:
                self.call_here(hook, event)
            elif not self._caller.offer(hook.function, event):
                self._drop()

    def call_here(self, hook: Hook, event: Event) -> None:
        """Call it before going on. What is async cannot run in a loop that stands still: it has the thread's."""
        if inspect.iscoroutinefunction(hook.function):
            self._caller.offer(hook.function, event)
            self._caller.flush(CLOSED_WITHIN)
        else:
            call(hook.function, event, None)

    def _drop(self) -> None:
        self.dropped += 1
        if self.dropped == 1:
            _log.error(
                "hooks are slower than the jobs they are told of: %d events wait, more are dropped and only counted "
                "(app.hooks.dropped); a durable hook misses none",
                self._caller.most,
            )

    def flush(self, within: timedelta = CLOSED_WITHIN) -> bool:
        """Wait until what has happened so far was told; False if that takes longer."""
        return self._caller.flush(within)

    def close(self) -> None:
        """Tell what is to be told, and end the thread. What happens later begins another."""
        self._caller.close(CLOSED_WITHIN)

    # -- durably -------------------------------------------------------------------------------------------------------

    @property
    def is_durable(self) -> bool:
        return bool(self._durable)

    @property
    def durable(self) -> list[Hook]:
        return list(self._durable.values())

    async def follow(self, client: Client) -> None:
        """Call the durable hooks, for ever, each as long as no other worker does."""
        from daybreak.api.hooks.durable import Follower  # noqa: PLC0415 - only workers follow

        async with asyncio.TaskGroup() as group:
            for hook in self._durable.values():
                group.create_task(Follower(hook, client, self.world).run())


def _joined(before: Iterable[Hook], hook: Hook) -> Hook:
    """A function under two decorators hears of the kinds of both."""
    kinds = (old.kinds for old in before if old.function is hook.function and old.name == hook.name)
    return hook._replace(kinds=hook.kinds.union(*kinds))

"""A handle on a resource: look at it, change it, and hold slots of it around code that is no job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from daybreak.api.locks import Lock, lock_job
from daybreak.api.portal import Portal, blocking
from daybreak.api.resources import ResourceInfo, info_of, reset_resource, set_resource, settings_in
from daybreak.api.store_sessions import Sessions, on_store_loop
from daybreak.client.leases import lease_of
from daybreak.core.model import Need, ResourceSettings, State
from daybreak.policy.resources import Resource, Share, check_resource

ALLOWED_WITHIN: Final = timedelta(seconds=10)


class ResourceHandle:
    """Something that jobs share. Handles are cheap: nothing is asked of the store until something is asked of them."""

    def __init__(self, sessions: Callable[[], Sessions], name: str) -> None:
        self.name = check_resource(name)
        self._find_sessions = sessions

    @property
    def _sessions(self) -> Sessions:
        return self._find_sessions()

    @property
    def _portal(self) -> Portal:
        return self._sessions.portal

    def __repr__(self) -> str:
        return f"<resource {self.name}>"

    @on_store_loop
    async def ainfo(self) -> ResourceInfo:
        """Its limits, what of it is in use, and who waits."""
        return await info_of(await self._sessions.client(), self.name)

    info = blocking(ainfo)

    @on_store_loop
    async def asettings(self) -> ResourceSettings:
        return await settings_in(await self._sessions.client(), self.name)

    settings = blocking(asettings)

    @on_store_loop
    async def aset(self, /, **changes: Any) -> ResourceSettings:
        """Change slots, rate, burst, breaker or max_waiting while it is in use; "none" takes a limit away. This wins
        over what the code declares, until it is reset."""
        return await set_resource(await self._sessions.client(), self.name, **changes)

    set = blocking(aset)

    @on_store_loop
    async def areset(self) -> ResourceSettings:
        """Back to what the code declares; without a declaration, to no limit at all. A breaker closes."""
        return await reset_resource(await self._sessions.client(), self.name)

    reset = blocking(areset)

    # -- for plain code ------------------------------------------------------------------------------------------------

    def slot(self, slots: int = 1, *, wait: object = "5m", priority: object = "normal", lease: object = "10s") -> Slot:
        """Hold slots of it around code that is no job, as a job would: `with app.resource("plecs").slot():`."""
        return Slot(self._find_sessions, self.name, slots, wait=wait, priority=priority, lease=lease)

    @on_store_loop
    async def aallow(self) -> bool:
        """Whether one more may start now, by slots, rate and breaker; if so, it has started, and its start is used."""
        sessions = self._sessions
        client, id_ = await sessions.client(), sessions.new_id()
        spec = lock_job.spec_for(
            client, id_, (Need(self.name),), holder=f"{client.by}/{id_}", owner=client.by, priority="normal",
            wait=ALLOWED_WITHIN, hold_for=ALLOWED_WITHIN,
        )  # fmt: skip
        await lock_job.ask(client, spec, (), sessions.provided)
        job = await client.get(id_)
        if job.state is State.RUNNING:
            return await lock_job.give_back(client, lease_of(job))
        await client.cancel(id_)
        return False

    allow = blocking(aallow)


class Slot(Lock):
    """Slots of a resource, held by code that is no job: as a context manager, or as a decorator."""

    def __init__(self, sessions: Callable[[], Sessions], resource: str, slots: int = 1, **said: Any) -> None:
        self._share = Share(resource, slots)
        super().__init__(sessions, (resource,), **said)

    _by_time = True

    def _named(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(names)

    @property
    def _needs(self) -> tuple[Need, ...]:
        return (self._share.need,)

    @property
    def _declared(self) -> list[Resource]:
        return []  # whose code declares it has said so

    def _another(self) -> Slot:
        return Slot(
            self._find_sessions, self.names[0], self._share.need.slots, priority=self.priority, wait=self.wait,
            lease=self.lease_for, on_lost=self._on_lost,
        )  # fmt: skip

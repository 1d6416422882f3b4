"""A handle on a resource: inspect it, change it, and hold its slots in code that is not a job."""

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

ALLOW_TIMEOUT: Final = timedelta(seconds=10)


class ResourceHandle:
    """A handle on a resource that jobs share. Creating a handle does not access the store."""

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
        """Return its limits, how much of it is in use, and how many jobs wait for it."""
        return await info_of(await self._sessions.client(), self.name)

    info = blocking(ainfo)

    @on_store_loop
    async def asettings(self) -> ResourceSettings:
        return await settings_in(await self._sessions.client(), self.name)

    settings = blocking(asettings)

    @on_store_loop
    async def aset(self, /, **changes: Any) -> ResourceSettings:
        """Change slots, rate, burst, breaker or max_waiting while the resource is in use; "none" removes a limit. These
        settings override what the code declares, until `reset`."""
        return await set_resource(await self._sessions.client(), self.name, **changes)

    set = blocking(aset)

    @on_store_loop
    async def areset(self) -> ResourceSettings:
        """Restore the settings that the code declares; without a declaration there is no limit. An open breaker
        closes."""
        return await reset_resource(await self._sessions.client(), self.name)

    reset = blocking(areset)

    # -- code that is not a job ----------------------------------------------------------------------------------------

    def slot(self, slots: int = 1, *, wait: object = "5m", priority: object = "normal", lease: object = "10s") -> Slot:
        """Hold slots of the resource in code that is not a job: `with app.resource("plecs").slot():`."""
        return Slot(self._find_sessions, self.name, slots, wait=wait, priority=priority, lease=lease)

    @on_store_loop
    async def aallow(self) -> bool:
        """Return whether slots, rate and breaker allow one more start now. If True, the start counts against the
        rate."""
        sessions = self._sessions
        client, id_ = await sessions.client(), sessions.new_id()
        spec = lock_job.spec_for(
            client, id_, (Need(self.name),), holder=f"{client.by}/{id_}", owner=client.by, priority="normal",
            wait=ALLOW_TIMEOUT, hold_for=ALLOW_TIMEOUT,
        )  # fmt: skip
        await lock_job.request(client, spec, (), sessions.provided)
        job = await client.get(id_)
        if job.state is State.RUNNING:
            return await lock_job.give_back(client, lease_of(job))
        await client.cancel(id_)
        return False

    allow = blocking(aallow)


class Slot(Lock):
    """Slots of a resource, held by code that is not a job. Use it as a context manager or as a decorator."""

    def __init__(self, sessions: Callable[[], Sessions], resource: str, slots: int = 1, **options: Any) -> None:
        self._share = Share(resource, slots)
        super().__init__(sessions, (resource,), **options)

    _freed_by_time = True

    def _check_names(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(names)

    @property
    def _needs(self) -> tuple[Need, ...]:
        return (self._share.need,)

    @property
    def _declared(self) -> list[Resource]:
        return []  # the code that declares the resource stores its settings

    def _copy(self) -> Slot:
        return Slot(
            self._find_sessions, self.names[0], self._share.need.slots, priority=self.priority, wait=self.wait,
            lease=self.lease_for, on_lost=self._on_lost,
        )  # fmt: skip

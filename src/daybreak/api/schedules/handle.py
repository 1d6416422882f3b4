"""A handle on one schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daybreak.api.portal import Portal, blocking
from daybreak.api.schedules.declared import ScheduleDeclaration
from daybreak.api.schedules.info import ScheduleInfo, preview_schedule, schedule_info
from daybreak.client.client import Client
from daybreak.client.schedule_changes import (
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule_now,
    save_schedule,
)
from daybreak.core.errors import BadInput
from daybreak.policy.schedules.words import PreviewedTick
from daybreak.tasks.import_guard import refuse_during_import

if TYPE_CHECKING:
    from daybreak.api.app import Daybreak
    from daybreak.api.job_handle import JobHandle


class ScheduleHandle:
    """A schedule of the store, by name. `declared` is what the code declares, if it does."""

    def __init__(self, app: Daybreak, name: str, declared: ScheduleDeclaration | None = None) -> None:
        self.name = name
        self.declared = declared
        self._app = app

    def __repr__(self) -> str:
        return f"<schedule {self.name}>"

    @property
    def _portal(self) -> Portal:
        return self._app.portal

    async def _client(self) -> Client:
        return await self._app.client()

    async def asave(self) -> None:
        """Write the schedule to the store now. Without this call, the next worker that starts does."""
        refuse_during_import("schedule(...).save")
        await self._app._sessions.here(self._save())  # noqa: SLF001 - the app and its handles are one part

    async def _save(self) -> None:
        if self.declared is None:
            raise BadInput(f"schedule {self.name!r} is not declared here: declare it with app.schedule(...), then save")
        await save_schedule(await self._client(), self.name, await self.declared.encoded(self._app.by))
        self._app.declared_schedules.pop(self.name, None)  # the store has it: workers need not write it again

    save = blocking(asave)

    async def ainfo(self) -> ScheduleInfo:
        """The schedule at this instant."""
        return await self._app._sessions.here(self._info())  # noqa: SLF001

    async def _info(self) -> ScheduleInfo:
        return await schedule_info(await self._client(), self.name)

    info = blocking(ainfo)

    async def apreview(self, n: int = 5) -> list[PreviewedTick]:
        """The next ticks, in words too: the time in the schedule's zone, and what a change of the clock does to it."""
        return await self._app._sessions.here(self._preview(n))  # noqa: SLF001

    async def _preview(self, n: int) -> list[PreviewedTick]:
        return await preview_schedule(await self._client(), self.name, n)

    preview = blocking(apreview)

    async def apause(self) -> None:
        """Fire no more ticks until `resume`. Jobs that exist are not affected."""
        await self._app._sessions.here(self._pause())  # noqa: SLF001

    async def _pause(self) -> None:
        await pause_schedule(await self._client(), self.name)

    pause = blocking(apause)

    async def aresume(self) -> None:
        """Fire ticks again, from now on: those of the pause are not caught up."""
        await self._app._sessions.here(self._resume())  # noqa: SLF001

    async def _resume(self) -> None:
        await resume_schedule(await self._client(), self.name)

    resume = blocking(aresume)

    async def arun_now(self) -> JobHandle[Any]:
        """Submit a job now, besides the ticks. With `overlap="skip"` it is the unfinished job, if there is one."""
        refuse_during_import("schedule(...).run_now")
        return self._app.job(await self._app._sessions.here(self._run_now()))  # noqa: SLF001

    async def _run_now(self) -> str:
        return (await run_schedule_now(await self._client(), self.name))[0]

    run_now = blocking(arun_now)

    async def aremove(self) -> None:
        """Delete the schedule; its jobs stay. If the code declares it, the next worker that starts writes it anew."""
        await self._app._sessions.here(self._remove())  # noqa: SLF001

    async def _remove(self) -> None:
        await remove_schedule(await self._client(), self.name)

    remove = blocking(aremove)

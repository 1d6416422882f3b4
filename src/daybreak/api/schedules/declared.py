"""What `app.schedule(...)` was given, checked; and the schedules of an app's code, written to the store."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import Struct

from daybreak.api.cached_submits import without_cache
from daybreak.api.task import Task, prepare
from daybreak.client.client import Client
from daybreak.client.schedule_changes import check_schedule_name, remove_schedule, save_schedule
from daybreak.client.schedule_record import GRACE, Declaration, read_schedules
from daybreak.core.errors import BadInput, Refused, ScheduleNotFound
from daybreak.core.units import counted, duration, moment
from daybreak.policy.schedules.due_ticks import CATCH_UP, OVERLAP, CatchUp, Overlap
from daybreak.policy.schedules.timing import Timing, next_tick, parse_timing
from daybreak.tasks.batches import BatchDefinition
from daybreak.values.file import NotStored

if TYPE_CHECKING:
    from daybreak.api.app import Daybreak

_log = logging.getLogger("daybreak.schedules")
# A schedule decides these options of its jobs itself.
_OWN_OPTIONS: Final = ("id", "tx", "key", "unique", "unique_while", "on_conflict", "delay", "run_at", "run")
C = TypeVar("C", bound=str)


class ScheduleDeclaration(Struct, frozen=True, kw_only=True):
    """A schedule as the code declares it. `args` are the arguments of its jobs, by name."""

    name: str
    task: Task[..., Any]
    timing: Timing
    args: dict[str, Any]
    catch_up: CatchUp
    overlap: Overlap
    grace: timedelta
    jitter: timedelta

    async def encoded(self, by: str) -> Declaration:
        """The declaration as the store keeps it. The app's rules are applied, and files among the arguments are
        stored."""
        # A tick is there to run the task again, so its jobs take no known result.
        spec = without_cache(await prepare(self.task, self.args, by=by))
        return Declaration(
            timing=self.timing,
            spec=msgspec.structs.replace(spec, id="", args=b"{}", by=""),
            args=msgspec.Raw(spec.args),
            catch_up=self.catch_up,
            overlap=self.overlap,
            grace=self.grace,
            jitter=self.jitter,
        )


def declare(
    name: str,
    task: Task[..., Any],
    *,
    cron: object = None,
    every: object = None,
    at: object = None,
    tz: object = None,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    catch_up: str = "latest",
    overlap: str = "skip",
    grace: object = GRACE,
    jitter: object = None,
) -> ScheduleDeclaration:
    """Parse the options of a schedule. Errors show the right spelling."""
    check_schedule_name(name)
    given = [option for option in _OWN_OPTIONS if option in task._options]  # noqa: SLF001 - the app, its tasks and schedules are one part
    if given:
        raise BadInput(
            f"schedule {name!r}: using({given[0]}=...) is decided by the schedule, for each job: leave it out"
        )
    return ScheduleDeclaration(
        name=name,
        task=task,
        timing=parse_timing(cron=cron, every=every, at=at, tz=tz),
        args=_named(name, task, args),
        catch_up=_choice("catch_up", catch_up, CATCH_UP),
        overlap=_choice("overlap", overlap, OVERLAP),
        grace=duration(grace, "grace"),
        jitter=timedelta() if jitter is None else duration(jitter, "jitter"),
    )


def _named(name: str, task: Task[..., Any], args: Mapping[str, Any] | Sequence[Any] | None) -> dict[str, Any]:
    """The arguments by name. They are checked now, so that a mistake is an error where it is written."""
    if args is None:
        named: dict[str, Any] = {}
    elif isinstance(args, Mapping):
        named = dict(args)
    elif isinstance(args, Sequence) and not isinstance(args, str | bytes):
        parameters = task.definition.parameters
        if isinstance(task.definition, BatchDefinition) and len(args) == 1:
            with contextlib.suppress(NotStored):
                task.definition.arguments.encode(tuple(args), {})
            return task.definition.named(tuple(args), {})
        if len(args) > len(parameters):
            takes = counted(len(parameters), "argument")
            raise BadInput(f"schedule {name!r}: task {task.name!r} takes {takes}, not {len(args)}")
        named = dict(zip(parameters, args, strict=False))
    else:
        raise BadInput(f"schedule {name!r}: args={args!r:.60}: write {{'name': value}}, or a list in the task's order")
    with contextlib.suppress(NotStored):
        task.definition.arguments.encode_named(named)
    return named


def _choice(option: str, value: object, choices: Sequence[C]) -> Any:
    if value not in choices:
        raise BadInput(f"{option}={value!r:.40}: choose {', '.join(choices[:-1])} or {choices[-1]}")
    return value


# -- what the code declares, in the store ------------------------------------------------------------------------------


async def provide_schedules(app: Daybreak, client: Client) -> None:
    """Write the schedules that the code of an app declares, when a worker starts. The code wins over what is stored; a
    pause stays. An app that has a name also removes those that its code no longer declares."""
    for declared in app.declared_schedules.values():
        try:
            declaration = await declared.encoded(app.by)
            saved = await save_schedule(client, declared.name, declaration, app=app.name, in_code=True)
        except Refused as error:
            _log.error("%s", error)
            continue
        if saved != "same":
            _log.info("schedule %s: %s", declared.name, saved)
            if next_tick(declared.timing, moment(client.wall())) is None:
                _log.warning("schedule %s: every time in at= is in the past, so it never ticks", declared.name)
    if app.name:
        await _remove_undeclared(app, client)


async def _remove_undeclared(app: Daybreak, client: Client) -> None:
    for stored in await read_schedules(client.store):
        if stored.schedule.app == app.name and stored.name not in app.declared_schedules:
            with contextlib.suppress(ScheduleNotFound):
                await remove_schedule(client, stored.name)
                _log.warning("schedule %s: removed, because app %s no longer declares it", stored.name, app.name)

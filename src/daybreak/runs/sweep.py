"""The calls of an app that make and find runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from daybreak.api.alerts.settings import alert_settings
from daybreak.core.errors import BadInput, RunNotFound
from daybreak.runs.designs import design_of
from daybreak.runs.notices import NoticeRights
from daybreak.runs.record import check_run_name, read_run, run_names, split_label
from daybreak.runs.run import Run
from daybreak.runs.submission import Submission, SweepPlan

if TYPE_CHECKING:
    from daybreak.api.app import Daybreak
    from daybreak.api.task import Task


async def sweep(
    app: Daybreak,
    task: Task[..., Any],
    grid: Mapping[str, Any] | None,
    *,
    rows: Any,
    fixed: Mapping[str, Any] | None,
    samples: Any,
    seed: int,
    name: str,
    fresh: bool,
    accept_changes: bool,
    stop_after: int | None,
    notify: Any,
    options: Mapping[str, Any],
) -> Run:
    """See `Daybreak.sweep`."""
    check_run_name(name)
    _check_task(task)
    if stop_after is not None and (isinstance(stop_after, bool) or not isinstance(stop_after, int) or stop_after < 1):
        raise BadInput(f"stop_after={stop_after!r:.40}: write how many equal failures are enough, such as 3")
    if fresh and accept_changes:
        raise BadInput("fresh runs every point anew, so there are no changes to accept: give one of the two")
    told = parse_notify(notify)
    design = design_of(grid, rows, fixed, samples, seed)
    sessions = app._sessions  # noqa: SLF001 - the app and its runs are one module in all but name

    async def submit() -> None:
        submission = Submission(
            await sessions.client(), task, design, name, options=options, fresh=fresh, accept_changes=accept_changes,
            stop_after=stop_after, notify=told,
        )  # fmt: skip
        await submission.run()

    await sessions.here(submit())
    return Run(sessions, app.program, name, rights=lambda: notice_rights(app, own=told))


async def plan_sweep(
    app: Daybreak,
    task: Task[..., Any],
    grid: Mapping[str, Any] | None,
    *,
    rows: Any,
    fixed: Mapping[str, Any] | None,
    samples: Any,
    seed: int,
    name: str,
    fresh: bool,
    accept_changes: bool,
    options: Mapping[str, Any],
) -> SweepPlan:
    """See `Daybreak.plan_sweep`."""
    check_run_name(name)
    _check_task(task)
    design = design_of(grid, rows, fixed, samples, seed)
    sessions = app._sessions  # noqa: SLF001

    async def plan() -> SweepPlan:
        submission = Submission(
            await sessions.client(), task, design, name, options=options, fresh=fresh, accept_changes=accept_changes
        )
        return await submission.plan()

    return await sessions.here(plan())


async def find_run(app: Daybreak, name: str) -> Run:
    """See `Daybreak.find_run`."""
    if not isinstance(name, str):
        raise BadInput(f"the name of a run is a text, not {name!r:.60}")
    sessions = app._sessions  # noqa: SLF001
    base, epoch = split_label(name)

    async def find() -> Run:
        store = (await sessions.client()).store
        record, _ = await read_run(store, base)
        if record is None or (epoch is not None and not 1 <= epoch <= record.epoch):
            raise RunNotFound(name, await run_names(store))
        past = None if epoch is None or epoch == record.epoch else epoch
        return Run(sessions, app.program, base, epoch=past, rights=lambda: notice_rights(app))

    return await sessions.here(find())


def notice_rights(app: Daybreak, *, allow_commands: bool = False, own: tuple[str, ...] = ()) -> NoticeRights:
    """What a process of this app may do to tell somebody of a run. Webhooks follow the settings of alerts."""
    alerts = alert_settings(app.settings.alerts)
    return NoticeRights(
        secret=alerts.webhook_secret,
        allow_private=alerts.allow_private_webhooks,
        allow_commands=allow_commands,
        own=own,
    )


def _check_task(task: object) -> None:
    if not hasattr(task, "definition"):
        raise BadInput(f"sweep() takes a task, a function under @app.task, not {task!r:.80}")


def parse_notify(notify: object) -> tuple[str, ...]:
    """Whom to tell: nobody, the desktop, a webhook, or a command. A command is kept as its words."""
    if notify is None:
        return ()
    wanted = 'write notify="desktop", notify="https://...", or a command as words: notify=["mail", "-s", "done", "me"]'
    if isinstance(notify, str):
        if notify == "desktop" or notify.startswith(("https://", "http://")):
            return (notify,)
        raise BadInput(f"notify={notify!r:.80}: {wanted}")
    if isinstance(notify, Sequence) and notify and all(isinstance(word, str) and word for word in notify):
        return ("command", *notify)
    raise BadInput(f"notify={notify!r:.80}: {wanted}")

"""`daybreak dispatch`: sends jobs to remote workers through SQS, and applies what they report."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from daybreak.cli import logs
from daybreak.cli.options import DURATION, NAME, Whole
from daybreak.cli.output import tell
from daybreak.cli.root import store_options
from daybreak.cli.session import is_there, session
from daybreak.core.errors import BadInput
from daybreak.core.text import safe


@click.command("dispatch", short_help="Send jobs to remote workers through SQS.")
@click.argument("target", type=NAME, required=False)
@click.option("--to", metavar="ADDRESS", type=NAME, required=True, help="The queues: sqs://region/prefix.")
@click.option("--depth", type=Whole(1), default=10, show_default=True, help="Messages that may wait, per priority.")
@click.option(
    "--missed-heartbeats", type=Whole(1), default=3, show_default=True,
    help="Heartbeats that a worker may miss before its jobs run elsewhere.",
)  # fmt: skip
@click.option("--take-back", type=DURATION, default="5m", show_default=True, help="Take back what nobody took so long.")
@click.option("--grant", metavar="FUNCTION", type=NAME, help="Makes what a job may reach: file.py:function.")
@click.option("--queues", "-q", metavar="NAMES", help="Queues to serve, by commas [default: those of the tasks].")
@click.option("--verbose", "-v", is_flag=True, help="Also log jobs that complete at their first attempt.")
def command(target: str | None, to: str, queues: str | None, verbose: bool, **how: Any) -> int:
    """Send jobs to workers that reach nothing but SQS, until stopped. The jobs stay in the store; TARGET is the app
    whose tasks are sent. Several dispatchers may run.

    Examples:
      daybreak sqs init --prefix transcribe --region eu-west-1
      daybreak dispatch tasks.py --to sqs://eu-west-1/transcribe
      daybreak worker tasks.py --url sqs://eu-west-1/transcribe

    """
    from daybreak.sqs.address import address_of  # noqa: PLC0415 - an extra

    here = session()
    if target is not None:
        here.app = target
    address = address_of(to)
    with here.command_line():
        app = here.loaded
        if app.settings.url.startswith("sqs://"):
            raise BadInput("--url names the store of the ledger, such as postgresql://host/database; --to the queues")
        is_there(app.settings)
        logs.to_stderr(verbose=verbose)
        tell(f"Dispatcher for {safe(here.target or '')} on {safe(app.settings.store)} to {address}. Ctrl-C stops it.")
        names = tuple(name.strip() for name in (queues or "").split(",") if name.strip())
        return _run(app, here.target or "", address, names, how)


store_options(command)


def _run(app: Any, target: str, address: Any, queues: tuple[str, ...], how: dict[str, Any]) -> int:
    from daybreak.api.resources import provide  # noqa: PLC0415 - `--help` does not need all this
    from daybreak.api.schedules.declared import provide_schedules  # noqa: PLC0415
    from daybreak.sqs.deliveries import DISPATCHER  # noqa: PLC0415
    from daybreak.sqs.dispatcher import Dispatcher  # noqa: PLC0415
    from daybreak.sqs.queues import open_queues  # noqa: PLC0415
    from daybreak.worker.settings import WorkerSettings  # noqa: PLC0415
    from daybreak.worker.supervisor.child_plan import ChildPlan  # noqa: PLC0415
    from daybreak.worker.supervisor.process import serve  # noqa: PLC0415
    from daybreak.worker.target import load_function  # noqa: PLC0415

    stack = contextlib.AsyncExitStack()
    grant = None if how["grant"] is None else load_function(how["grant"])

    async def make() -> Dispatcher:
        stack.push_async_callback(app.aclose)
        opened = await stack.enter_async_context(open_queues(address))
        client = await app.client()
        await provide(client, app.program.resources())
        await provide_schedules(app, client)
        return Dispatcher(
            client.store,
            opened,
            ChildPlan(program=app.program, settings=WorkerSettings(name=DISPATCHER, queues=queues)),
            app.world,
            app=app.name or target,
            blobs=await app._sessions.files.blobs(),  # noqa: SLF001 - as for workers
            depth=how["depth"],
            missed=how["missed_heartbeats"],
            valid_for=how["take_back"],
            listener=app.hooks,
            grant=grant,
        )

    return serve(make, stack.aclose)

"""`daybreak bridge`: makes jobs of the messages of a broker, and sends it the events of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from daybreak.cli import logs
from daybreak.cli.errors import leave_stdout_to_tasks
from daybreak.cli.options import NAME, Whole
from daybreak.cli.output import tell
from daybreak.cli.root import store_options
from daybreak.cli.session import is_there, session
from daybreak.core.errors import BadInput
from daybreak.core.text import safe

if TYPE_CHECKING:
    from daybreak.feeds.bridge import Bridge


@click.command("bridge", short_help="Make jobs of a broker's messages, and send it events.")
@click.argument("broker", metavar="[URL]", required=False, type=NAME)
@click.option("--task", type=NAME, help="The task whose jobs the messages submit.")
@click.option("--in", "incoming", type=NAME, help="The topic whose messages are read.")
@click.option("--out", "outgoing", type=NAME, help="The topic to which events of jobs are sent.")
@click.option("--dead", type=NAME, help="The topic for messages that cannot be handled [default: that of --in, .dead].")
@click.option("--form", type=click.Choice(["message", "arguments"]), help="What a message is [default: message].")
@click.option("--event", "events", multiple=True, type=NAME, help="Send only events of this kind; may be repeated.")
@click.option("--every-task", is_flag=True, help="Send the events of all jobs, not only those of --task.")
@click.option("--source", type=NAME, help="The source of the CloudEvents [default: /daybreak/ and the bridge's name].")
@click.option("--queue", "-q", type=NAME, help="The queue of the jobs [default: one named after the task].")
@click.option("--max-running", type=Whole(1), help="How many jobs of a new queue may run at once [default: no limit].")
@click.option("--capacity", type=Whole(1), help="How many unfinished jobs a new queue may hold [default: 10000].")
@click.option("--name", type=NAME, help="A name for this bridge [default: the topic].")
@click.option("--worker", "with_worker", is_flag=True, help="Run the jobs too, in a worker with its default settings.")
@click.option("--verbose", "-v", is_flag=True, help="Log more.")
def command(broker: str | None, with_worker: bool, verbose: bool, **options: Any) -> int:
    """Make one job of every message of a topic, until Ctrl-C, and send events of jobs to a topic. Workers run the jobs.
    URL names the broker: nats://host:4222, kafka://host:9092, amqp://user:password@host/ or redis://host:6379. Without
    URL: the bridges that the app's code declares with app.bridge(...), which its workers run, too.

    Examples:
      daybreak bridge nats://localhost:4222 --task execute --in requests --out events
      daybreak bridge --app tasks.py

    """
    here = session()
    app = here.loaded
    given = {name: value for name, value in options.items() if value not in (None, (), False)}
    with here.command_line():
        bridges = _declared(app, broker, given)
        is_there(app.settings)  # raises if there is no permission to check; a store that is missing will be created
        leave_stdout_to_tasks()
        logs.to_stderr(verbose=verbose)
        for bridge in bridges:
            tell(safe(f"Bridge {bridge.name}: {_topics(bridge)} of {bridge.address}, on {app.settings.store}."))
        tell("Ctrl-C stops it.")
        if with_worker:
            return int(app.run_worker(app.worker_settings(), here.target))
        from daybreak.feeds.bridge.process import run_bridges  # noqa: PLC0415 - loads the bridge

        return run_bridges(app, bridges)


store_options(command)


def _declared(app: Any, broker: str | None, options: dict[str, Any]) -> list[Bridge]:
    """The bridges of the app's code, or the one that the options describe."""
    if broker is None:
        if options:
            raise BadInput(f"which broker? --{_spelt(next(iter(options)))} needs its URL, as in nats://localhost:4222")
        if not app.bridges:
            raise BadInput("which broker? write its URL and --in TOPIC, or call app.bridge(...) in the code")
        return list(app.bridges)
    task = options.pop("task", None)
    name = options.get("name") or options.get("incoming") or options.get("outgoing")
    app.bridges[:] = [bridge for bridge in app.bridges if bridge.name != name]
    return [app.bridge(broker, task, **options)]


def _spelt(option: str) -> str:
    return {"incoming": "in", "outgoing": "out", "events": "event"}.get(option, option.replace("_", "-"))


def _topics(bridge: Bridge) -> str:
    ways = []
    if bridge.topics.incoming:
        ways.append(f"messages from {bridge.topics.incoming}" + (f" for task {bridge.task}" if bridge.task else ""))
    if bridge.topics.outgoing:
        ways.append(f"events to {bridge.topics.outgoing}")
    return ", ".join(ways)

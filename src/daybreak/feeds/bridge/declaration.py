"""What `app.bridge(...)` was given, checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from daybreak.core.errors import BadInput
from daybreak.core.events import KINDS, QUEUE_KINDS
from daybreak.core.text import any_of
from daybreak.feeds.bridge.channels.address import BrokerAddress, parse_broker
from daybreak.feeds.bridge.channels.channel import Message, Topics
from daybreak.feeds.bridge.messages import Incoming, read_arguments, read_message
from daybreak.feeds.own_queue import own_queue
from daybreak.policy.admit import check_name

if TYPE_CHECKING:
    from daybreak.api.app import Daybreak
    from daybreak.api.task import Task

Read = Callable[[Message], Incoming]
# Events that belong to no job, and progress, which may come many times a second.
NOT_SENT: Final = frozenset({
    "progress", "folded", "breaker_opened", "breaker_closed", "breaker_probing", "saga_stuck", *QUEUE_KINDS,
})  # fmt: skip
SENT: Final = frozenset(KINDS) - NOT_SENT
_NAMES: Final = {
    "nats": (re.compile(r"[^.*>]+(\.[^.*>]+)*"), "write one subject, such as 'orders.new', without wildcards"),
    "kafka": (re.compile(r"[A-Za-z0-9._-]+"), "a topic of Kafka has letters, digits, '.', '_' and '-' only"),
}
FORMS: Final = ("message", "arguments")


class Bridge(Struct, frozen=True, kw_only=True):
    """One bridge. `task` is empty if its messages submit no jobs. `event_task` is the task whose events are sent; empty
    for the events of all jobs."""

    name: str
    address: BrokerAddress
    topics: Topics
    read: Read
    task: str = ""
    queue: str = ""
    event_kinds: frozenset[str] = SENT
    event_task: str = ""
    source: str = ""
    max_running: int | None = None
    capacity: int | None = 10_000


def declare(
    url: str,
    task: str = "",
    *,
    incoming: str | None = None,
    outgoing: str | None = None,
    dead: str | None = None,
    name: str | None = None,
    form: str = "message",
    read: Read | None = None,
    queue: str = "",
    events: Iterable[str] | None = None,
    every_task: bool = False,
    source: str | None = None,
    max_running: int | None = None,
    capacity: int | None = 10_000,
) -> Bridge:
    """Parse the options of a bridge. Errors show the right spelling."""
    address = parse_broker(url)
    for what, topic in (("incoming", incoming), ("outgoing", outgoing), ("dead", dead)):
        if topic is not None:
            _check_topic(what, topic, address.kind)
    if incoming is None and outgoing is None:
        raise BadInput("bridge: name a topic to read, incoming='...', or one for events, outgoing='...', or both")
    if task and incoming is None:
        raise BadInput(f"bridge: which topic brings the jobs of task {task!r}? add incoming='...'")
    topic = incoming or outgoing or ""
    if topic in (outgoing if incoming else None, dead):
        raise BadInput(f"bridge: {topic!r} is named twice; the topics of a bridge must differ")
    for what, limit in (("max_running", max_running), ("capacity", capacity)):
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise BadInput(f"bridge({what}={limit!r:.40}): write a whole number of 1 or more, or None for no limit")
    if form not in FORMS:
        raise BadInput(f"bridge(form={form!r:.40}): write {any_of(map(repr, FORMS))}")
    label = topic if name is None else name
    check_name("bridge", label)
    if len(label) > 100 or not label:
        raise BadInput(f"bridge(name={label!r:.40}): write a name of 1 to 100 characters")
    return Bridge(
        name=label, address=address, task=task, queue=queue,
        topics=Topics(
            group=f"daybreak-{label}", incoming=incoming or "", outgoing=outgoing or "",
            dead=(dead or f"{incoming}.dead") if incoming else "",
        ),
        read=read or (_read_arguments if form == "arguments" else _read_message),
        event_kinds=_event_kinds(events), event_task="" if every_task else task,
        source=source or f"/daybreak/{label}", max_running=max_running, capacity=capacity,
    )  # fmt: skip


def add_bridge(app: Daybreak, url: str, task: Task[..., Any] | str | None, **options: Any) -> Bridge:
    """Declare a bridge of an app: `app.bridge`."""
    found = None
    if task is not None:
        found = app.find_task(task if isinstance(task, str) else getattr(task, "name", str(task)))
        options["queue"] = options.get("queue") or own_queue(found)
    bridge = declare(url, found.name if found else "", **options)
    if any(other.name == bridge.name for other in app.bridges):
        raise BadInput(f"two bridges are named {bridge.name!r}: give one of them another name with bridge(name='...')")
    app.bridges.append(bridge)
    if bridge.queue:
        app.program.fed_queues.append(bridge.queue)
    return bridge


def _read_message(message: Message) -> Incoming:
    return read_message(message.body)


def _read_arguments(message: Message) -> Incoming:
    return read_arguments(message.body)


def _check_topic(what: str, topic: object, kind: str) -> None:
    if not isinstance(topic, str) or not topic or len(topic) > 200 or not topic.isprintable() or " " in topic:
        raise BadInput(f"bridge({what}={topic!r:.60}): write the name of a topic, such as 'orders.new'")
    # A broker would take some of these, but the dead letters would have nowhere to go.
    if kind in _NAMES and not _NAMES[kind][0].fullmatch(topic):
        raise BadInput(f"bridge({what}={topic!r:.60}): {_NAMES[kind][1]}")


def _event_kinds(events: Iterable[str] | None) -> frozenset[str]:
    if events is None:
        return SENT
    kinds = [events] if isinstance(events, str) else list(events)
    possible = frozenset(KINDS) - NOT_SENT | {"progress"}
    for kind in kinds:
        if kind not in possible:
            raise BadInput(
                f"bridge(events=...): there is no event {kind!r:.40}; the events are {any_of(sorted(possible))}"
            )
    return frozenset(kinds)

"""Makes jobs of messages. A message is acknowledged after the store has accepted its job, and never before.

Nothing is remembered here: a bridge that is killed between any two lines leaves messages that the broker delivers
again, and jobs whose keys say which messages they are (docs/decisions/0044-broker-bridges.md)."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from daybreak.api.task import prepare
from daybreak.client.client import Client
from daybreak.core.errors import BadInput, Refused, StoreError
from daybreak.core.model import JobSpec
from daybreak.core.text import safe
from daybreak.core.units import counted
from daybreak.feeds.bridge.channels.channel import Channel, Message
from daybreak.feeds.bridge.declaration import Bridge
from daybreak.feeds.bridge.finish import NotFinished, finish
from daybreak.feeds.bridge.messages import Finish, Submit, checked
from daybreak.policy.admit import NAME_LIMIT, admit
from daybreak.store.protocol import Inserted, Verdict

if TYPE_CHECKING:
    from daybreak.api.app import Daybreak

_log = logging.getLogger("daybreak.bridge")

BATCH: Final = 500
WAIT: Final = timedelta(seconds=1)
FULL_PAUSE: Final = timedelta(milliseconds=500)  # how long a full queue is left alone, at first
MAX_PAUSE: Final = timedelta(seconds=5)  # also the longest time between two signs of life for messages that are held
META_BRIDGE: Final = "bridge"
META_MESSAGE: Final = "message"


class Counts(Struct):
    """What became of messages since the start of this process."""

    received: int = 0
    submitted: int = 0
    repeated: int = 0
    finished: int = 0
    late: int = 0
    dead: int = 0
    full: int = 0


class _Poison(Struct, frozen=True):
    """Why a message can never be handled."""

    reason: str


class Intake:
    """Reads the incoming topic of one bridge, over whatever channel it is given."""

    def __init__(self, app: Daybreak, client: Client, bridge: Bridge) -> None:
        self._app = app
        self._client = client
        self._bridge = bridge
        self._task = app.find_task(bridge.task) if bridge.task else None
        self._world = app.world
        self._is_full = False
        self.counts = Counts()

    async def run(self, channel: Channel) -> None:
        """Handle messages until cancelled. Raises ChannelError when the channel is of no more use."""
        while True:
            messages = await channel.receive(BATCH, WAIT)
            self.counts.received += len(messages)
            await self.handle(channel, messages)

    async def handle(self, channel: Channel, messages: Sequence[Message]) -> None:
        """Handle messages in their order. Nothing more is received until all of them are done: that is the
        back-pressure of a full queue, and of a store that cannot be reached."""
        left, pause = list(messages), FULL_PAUSE
        while left:
            try:
                rest = await self._handle_some(channel, left)
            except StoreError as error:
                _log.warning(
                    "bridge %s: %s; %s wait", safe(self._bridge.name), error, counted(len(left), "message")
                )  # fmt: skip
                rest = left
            if len(rest) < len(left):
                pause = FULL_PAUSE
            if rest and rest[0] is left[0]:
                await channel.hold(rest)
                await self._world.sleep(pause)
                pause = min(pause * 2, MAX_PAUSE)
            left = rest

    async def _handle_some(self, channel: Channel, messages: list[Message]) -> list[Message]:
        """Handle the first messages; returns those that are left. Jobs are inserted together, up to the first message
        about a job: that job may be one of them."""
        specs: list[tuple[Message, JobSpec]] = []
        for number, message in enumerate(messages):
            reading = await self._read(message)
            if isinstance(reading, JobSpec):
                specs.append((message, reading))
            elif isinstance(reading, _Poison):
                await self._dead_letter(channel, message, reading.reason)
            elif specs:
                return await self._insert(channel, specs) + messages[number:]
            else:
                await self._finish(channel, message, reading)
                return messages[number + 1 :]
        return await self._insert(channel, specs)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    async def _read(self, message: Message) -> JobSpec | Finish | _Poison:
        try:
            reading = checked(self._bridge.read(message))
            return await self._spec(message, reading) if isinstance(reading, Submit) else reading
        except (BadInput, Refused) as error:
            return _Poison(str(error))
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - a reader or a rule of the app
            return _Poison(f"{type(error).__name__}: {error}")

    async def _spec(self, message: Message, submit: Submit) -> JobSpec:
        if self._task is None:
            raise BadInput("this bridge submits no jobs: it was declared without a task")
        if submit.task is not None and submit.task not in (self._task.name, *self._task.definition.aliases):
            raise BadInput(f"the message is for task {submit.task!r}; this bridge submits {self._task.name!r}")
        identity = submit.id or message.id or message.position
        key = submit.key
        if key is None:
            if identity is None:
                raise BadInput(
                    "the message has no identity, so it could be handled twice: send it with a message id, or with "
                    '"id" or "key" in its body'
                )
            key = key_of(self._bridge.name, identity)
        options: dict[str, Any] = {
            name: value
            for name in ("priority", "delay", "expires_in", "owner")
            if (value := getattr(submit, name)) is not None
        }
        if submit.tags:
            options["tags"] = tuple(submit.tags)
        meta = {**submit.meta, META_BRIDGE: self._bridge.name, META_MESSAGE: identity or ""}
        task = self._task.using(key=key, queue=self._bridge.queue, meta=meta, **options)
        spec = await prepare(task, task.definition.arguments.accept(submit.args), by=self._client.by)
        # Here, and not when it is inserted: there, one bad job would fail all jobs of the batch, again and again.
        return admit(spec, self._client.store.traits.features)

    async def _insert(self, channel: Channel, specs: list[tuple[Message, JobSpec]]) -> list[Message]:
        """Submit jobs, then acknowledge their messages. Returns the messages for whose jobs there is no room."""
        full: list[Message] = []
        accepted: list[Message] = []
        answers = await self._client.submit_many([spec for _, spec in specs]) if specs else []
        for (message, spec), answer in zip(specs, answers, strict=True):
            if answer.verdict is Verdict.FULL:
                full.append(message)
            elif answer.verdict is Verdict.CONFLICT:
                await self._dead_letter(channel, message, _conflict(spec, answer))
            else:
                accepted.append(message)
                self._count(spec, answer)
        await self._app.hooks.found_among(self._client, answers)
        if accepted:
            await channel.acknowledge(accepted)
        self._say_full(full)
        return full

    def _count(self, spec: JobSpec, answer: Inserted) -> None:
        if answer.is_new:
            self.counts.submitted += 1
            self._app.hooks.submitted(spec, answer.job)
        else:
            self.counts.repeated += 1

    def _say_full(self, full: list[Message]) -> None:
        if full:
            self.counts.full += 1
            if not self._is_full:
                _log.warning(
                    "bridge %s: queue %s is full; messages stay in %s until there is room",
                    safe(self._bridge.name), safe(self._bridge.queue), safe(self._bridge.topics.incoming),
                )  # fmt: skip
        self._is_full = bool(full)

    # -- messages about jobs, and those that nobody understands --------------------------------------------------------

    async def _finish(self, channel: Channel, message: Message, reading: Finish) -> None:
        try:
            late = await finish(self._app, self._client, reading)
        except (NotFinished, BadInput, Refused) as error:
            await self._dead_letter(channel, message, str(error))
            return
        await channel.acknowledge([message])
        if late:
            self.counts.late += 1
            _log.info("bridge %s: %s", safe(self._bridge.name), safe(late))
        else:
            self.counts.finished += 1

    async def _dead_letter(self, channel: Channel, message: Message, reason: str) -> None:
        topics = self._bridge.topics
        await channel.dead_letter(topics.dead, message, reason, topics.incoming)
        self.counts.dead += 1
        _log.warning(
            "bridge %s: message %s goes to %s: %s",
            safe(self._bridge.name), safe(message.id or message.position or "without an id"), safe(topics.dead),
            safe(reason),
        )  # fmt: skip


def key_of(bridge: str, identity: str) -> str:
    """The idempotency key of a message's job. An identity that is too long, or that has control characters, is
    hashed."""
    start = f"bridge {bridge} "
    if len(start) + len(identity) > NAME_LIMIT or not identity.isprintable():
        identity = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
    return start + identity


def _conflict(spec: JobSpec, answer: Inserted) -> str:
    return f"the key {spec.key!r} belongs to job {answer.job}, which has other arguments"

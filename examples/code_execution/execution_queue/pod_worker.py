"""The pod worker: takes commands from a topic, runs the code of each in a sandbox, and publishes its output and its
outcome. It knows no store.

A Kubernetes pod worker would be this module with another `_outcome`: README.md says which lines change."""

from __future__ import annotations

import argparse
import asyncio
import codecs
import contextlib
import itertools
import logging
import re
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

from daybreak.core.errors import BadInput
from daybreak.feeds.bridge.channels import make_channel
from daybreak.feeds.bridge.channels.address import parse_broker
from daybreak.feeds.bridge.channels.channel import Channel, ChannelError, Message, Outgoing, Topics
from execution_queue import control_groups, sandbox
from execution_queue.broker import Publisher
from execution_queue.events import (
    COMMANDS,
    OUTCOMES,
    OUTPUT,
    CreatePodCommandEvent,
    DeletePodCommandEvent,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionTimeout,
    Outcome,
    PodOutput,
    message_of,
    read_command,
)
from execution_queue.pods import PodDied, PodRuns, Pods

_log = logging.getLogger("pod_worker")

WAIT: Final = timedelta(seconds=1)
HOLD_EVERY: Final = 5.0  # seconds: the broker gives the commands of a silent pod worker to another one
LOOK_EVERY: Final = 0.1  # seconds between two looks whether a pod is still wanted, and for which output is collected
RECONNECT_AFTER: Final = 0.5
AFTER_ERROR: Final = re.compile(r"\s|$|\}$|Node\.js v\d|\d+: 0x|-----|<---")  # the stack, and the version of Node.js
ENDS_WITHIN: Final = 5.0


class PodWorker:
    """Takes commands as long as it has room, and acknowledges each after its outcome was published."""

    def __init__(
        self, broker: str, pods: Pods, *, room: int, limits: sandbox.Limits, hold_every: float = HOLD_EVERY,
        outcomes: str = OUTCOMES,
    ) -> None:  # fmt: skip
        self._address = parse_broker(broker)
        self._topics = Topics(group="pod-workers", incoming=COMMANDS, dead=f"{COMMANDS}.dead")
        self._pods = pods
        self._room = room
        self._limits = limits
        self._hold_every = hold_every
        self._outcomes = outcomes
        self._running: dict[asyncio.Task[None], Message] = {}
        # A connection of its own: some brokers answer nothing else on a connection that waits for messages.
        self._publisher = Publisher(broker)
        self._is_open = False
        self._is_stopping = False

    async def run(self) -> None:
        """Run until `stop`; then the pods that run are ended, and reported as failed."""
        while not self._is_stopping:
            channel = make_channel(self._address, self._topics)
            try:
                await channel.open()
                self._is_open = True
                await self._serve(channel)
            except ChannelError as error:
                _log.warning("%s: %s; connecting again", self._address, error)
                await asyncio.sleep(RECONNECT_AFTER)
            finally:
                self._is_open = False
                await channel.close()
        await self._publisher.close()

    def stop(self) -> None:
        self._is_stopping = True

    async def _serve(self, channel: Channel) -> None:
        holding = asyncio.create_task(self._hold(channel))
        try:
            while not self._is_stopping:
                room = self._room - len(self._running)
                if room <= 0:
                    await asyncio.wait(self._running, timeout=LOOK_EVERY, return_when=asyncio.FIRST_COMPLETED)
                    continue
                for message in await channel.receive(room, WAIT):
                    task = asyncio.create_task(self._handle(channel, message))
                    self._running[task] = message
                    task.add_done_callback(self._running.pop)
                if holding.done():
                    holding.result()
        finally:
            holding.cancel()
            if self._is_stopping and self._running:
                for task in self._running:
                    task.cancel()
                await asyncio.wait(self._running, timeout=ENDS_WITHIN)

    async def _hold(self, channel: Channel) -> None:
        while True:
            await asyncio.sleep(self._hold_every)
            await channel.hold(list(self._running.values()))

    async def _handle(self, channel: Channel, message: Message) -> None:
        """One command. If its channel breaks, it comes again, and finds what was done of it."""
        try:
            command = read_command(message.body)
        except BadInput as error:
            with contextlib.suppress(ChannelError):
                await channel.dead_letter(self._topics.dead, message, str(error), COMMANDS)
            return
        try:
            if isinstance(command, DeletePodCommandEvent):
                _log.info("pod %s: deleted: %s", command.saga_id, command.reason)
                self._pods.delete(command.saga_id)
            else:
                await self._create(command)
            await channel.acknowledge([message])
        except PodRuns:
            pass  # its outcome will be published; until then the command may come again
        except ChannelError as error:
            _log.debug("%s; the command comes again", error)
        except Exception:  # noqa: BLE001 - one command never stops the others
            _log.exception("a command could not be handled; it comes again")

    # -- a pod ---------------------------------------------------------------------------------------------------------

    async def _create(self, command: CreatePodCommandEvent) -> None:
        """Run a pod and publish its outcome; if it has run before, publish that outcome again."""
        self._pods.supersede(command.saga_id, command.fence)
        try:
            with self._pods.begin(command.saga_id, command.fence) as pod:
                if not pod.outcome:
                    pod.end(msgspec.json.encode(await self._run(command)))
                outcome = Outgoing(
                    body=pod.outcome, id=f"{command.job}.{command.fence}.outcome", key=command.execution_id
                )  # fmt: skip
                await self._publish(self._outcomes, outcome)
        except PodDied:
            _log.warning("pod %s.%d: its pod worker died", command.saga_id, command.fence)
            lost = ExecutionFailed(
                execution_id=command.execution_id, job=command.job, fence=command.fence,
                error="the pod worker died while the pod ran",
            )  # fmt: skip
            await self._publish(self._outcomes, message_of(lost, f"{command.job}.{command.fence}.lost"))

    async def _run(self, command: CreatePodCommandEvent) -> Outcome:
        try:
            return await self._outcome(command)
        except asyncio.CancelledError:  # this pod worker stops; whether there is another attempt, policy decides
            return ExecutionFailed(
                execution_id=command.execution_id, job=command.job, fence=command.fence,
                error="the pod worker was stopped while the pod ran",
            )  # fmt: skip

    async def _publish(self, topic: str, message: Outgoing) -> None:
        """Publish, over as many connections as it takes."""
        while True:
            try:
                await self._publisher.publish(topic, message)
            except ChannelError as error:
                _log.warning("cannot publish to %s: %s; trying again", topic, error)
            else:
                return
            await asyncio.sleep(RECONNECT_AFTER)

    async def _outcome(self, command: CreatePodCommandEvent) -> Outcome:
        about = {"execution_id": command.execution_id, "job": command.job, "fence": command.fence}
        if not self._pods.is_wanted(command.saga_id, command.fence):
            return ExecutionFailed(**about, error="the pod was deleted before it started")  # type: ignore[arg-type]
        _log.info("pod %s.%d: %s", command.saga_id, command.fence, command.language)
        output = LiveOutput(self, command)
        limits = msgspec.structs.replace(
            self._limits, seconds=command.timeout_seconds, memory=command.memory_mb * sandbox.MIB
        )
        running = asyncio.create_task(sandbox.run(command.language, command.script, limits, output.add))
        try:
            while not running.done():
                await asyncio.wait([running], timeout=LOOK_EVERY)
                if not running.done() and not self._pods.is_wanted(command.saga_id, command.fence):
                    return ExecutionFailed(**about, error="the pod was deleted")  # type: ignore[arg-type]
                await output.send()
            ended = await running
            await output.send()
        except sandbox.NoSandbox as error:
            _log.error("pod %s.%d could not be started: %s", command.saga_id, command.fence, error)
            return ExecutionFailed(**about, error=f"the pod could not be started: {error}")  # type: ignore[arg-type]
        except (OSError, KeyError) as error:
            return ExecutionFailed(**about, error=f"the pod could not be started: {error!r}")  # type: ignore[arg-type]
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        found = {
            **about, "exit_code": ended.exit_code, "stdout": ended.stdout, "stderr": ended.stderr,
            "seconds": round(ended.seconds, 3),
        }  # fmt: skip
        if ended.ending == "timeout":
            return ExecutionTimeout(**found, error=f"ran longer than {limits.seconds:g} s")
        if ended.ending == "output":
            return ExecutionFailed(**found, error=f"printed more than {limits.output:,} bytes")
        if ended.ending == "memory":
            return ExecutionFailed(**found, error=f"used more than {command.memory_mb} MB of memory")
        if ended.exit_code != 0:
            return ExecutionFailed(**found, error=error_of(ended, command.language))
        return ExecutionCompleted(**found)

    async def send_output(self, part: PodOutput) -> None:
        """Publish output if the broker is there. Output is also in the outcome."""
        if self._is_open:
            with contextlib.suppress(ChannelError):
                await self._publisher.publish(OUTPUT, message_of(part, f"{part.execution_job}.{part.run}.{part.start}"))


class LiveOutput:
    """The output of a pod, collected for a moment and then sent."""

    def __init__(self, worker: PodWorker, command: CreatePodCommandEvent) -> None:
        self._worker = worker
        self._command = command
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}
        self._parts: list[tuple[str, str]] = []
        self._start = 0

    async def add(self, stream: str, part: bytes) -> None:
        self._parts.append((stream, self._decoders[stream].decode(part)))

    async def send(self) -> None:
        parts, self._parts = self._parts, []
        for stream, same in itertools.groupby(parts, lambda part: part[0]):
            text = "".join(text for _, text in same)
            start, self._start = self._start, self._start + len(text.encode())
            if text:
                await self._worker.send_output(
                    PodOutput(
                        execution_id=self._command.execution_id, execution_job=self._command.execution_job,
                        run=self._command.run, start=start, stream=stream, text=text,
                    )
                )  # fmt: skip


def error_of(ended: sandbox.Finished, language: str) -> str:
    """What went wrong in code that failed, in one line."""
    line = last_line(ended.stderr, language)
    if ended.exit_code >= 0:
        return line or f"exit code {ended.exit_code}"
    number = -ended.exit_code
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = "a real-time signal"
    return f"ended by signal {number} ({name})" + (f": {line}" if line else "")


def last_line(text: str, language: str = "") -> str:
    """The line of an error output that says what happened: the last one, but for what Node.js prints after it."""
    lines = text.strip().split("\n")
    if language == "node":
        lines = [line for line in lines if not AFTER_ERROR.match(line)] or lines
    return lines[-1].strip()[:500] if lines else ""


async def _main(given: argparse.Namespace) -> None:
    sandbox.check_machine()
    pods = Pods(given.pods)
    pods.forget_old()
    control_groups.remove_stale_groups()
    with control_groups.control_group(given.room, sandbox.MIB) as group:
        if group is None:
            _log.warning(
                "no cgroups here: memory is bounded for each process of a pod, and not for all of them together"
            )
    worker = PodWorker(
        given.broker,
        pods,
        room=given.room,
        limits=sandbox.Limits(),
        hold_every=given.hold_every,
        outcomes=given.outcomes,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    print(f"pod worker: commands from {COMMANDS} at {parse_broker(given.broker)}", flush=True)
    await worker.run()


def main() -> int:
    options = argparse.ArgumentParser(description="Run pods in a sandbox on this machine.")
    options.add_argument("--broker", default="nats://localhost:4222", help="the broker (nats://localhost:4222)")
    options.add_argument(
        "--pods", type=Path, default=Path("pods"), help="a folder that all pod workers here share (pods)"
    )
    options.add_argument("--room", type=int, default=20, help="how many pods may run at once (20)")
    options.add_argument(
        "--hold-every",
        type=float,
        default=HOLD_EVERY,
        help="seconds; less than the broker waits for a silent worker (5)",
    )
    options.add_argument("--outcomes", default=OUTCOMES, help=f"the topic for outcomes ({OUTCOMES})")
    given = options.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        asyncio.run(_main(given))
    except (sandbox.NoSandbox, BadInput) as error:
        print(f"pod worker: {error}", file=sys.stderr)
        return 1
    return 0

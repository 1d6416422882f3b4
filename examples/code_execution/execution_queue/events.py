"""The events and commands that the parts of this system send each other: the names of the Integr8sCode document.

Each is one JSON object with the name of its type as `event_type`. The id of a message is the same whenever it is sent
again, so brokers and stores can drop what comes twice."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from daybreak.core.errors import BadInput
from daybreak.feeds.bridge import Cancel, Completed, Failed, Message, Submit
from daybreak.feeds.bridge.channels.channel import Outgoing

REQUESTED: Final = "executions.requested"  # topics
COMMANDS: Final = "executions.commands"
OUTCOMES: Final = "executions.outcomes"
OUTPUT: Final = "executions.output"
EVENTS: Final = "executions.events"

RUNS: Final = 100  # pods of one attempt at an execution, at most: they number its output
MAX_REPORTED: Final = 24 * 1024  # bytes of either stream in the result of an execution
MAX_SCRIPT: Final = 64 * 1024  # bytes; it travels in the context of a saga
PRIORITIES: Final = ("CRITICAL", "HIGH", "NORMAL", "LOW", "BACKGROUND")

Id = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._:-]+$")]
Reason = Annotated[str, Meta(max_length=1000)]


class Event(Struct, frozen=True, kw_only=True, tag_field="event_type", tag=lambda name: name):
    execution_id: Id


class ExecutionRequested(Event, frozen=True, kw_only=True):
    """Somebody wants code to be run."""

    script: str
    language: str = "python"
    user_id: str = ""
    priority: str = "NORMAL"
    timeout_seconds: float | None = None


ExecutionRequestedEvent = ExecutionRequested  # the document has both names


class ExecutionCancelled(Event, frozen=True, kw_only=True):
    """Somebody wants an execution to end."""

    reason: Reason = ""


class PodOutcome(Event, frozen=True, kw_only=True):
    """What became of a pod. `job` and `fence` are those of the command that created it: an outcome of another attempt
    is refused by them."""

    job: str
    fence: int
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    error: str = ""


class ExecutionCompleted(PodOutcome, frozen=True, kw_only=True):
    """The code ran to its end and said that all is well."""


class ExecutionFailed(PodOutcome, frozen=True, kw_only=True):
    """The code failed; without an `exit_code` it was the pod that failed."""


class ExecutionTimeout(PodOutcome, frozen=True, kw_only=True):
    """The code ran longer than it may."""


class CreatePodCommandEvent(Event, frozen=True, kw_only=True):
    """Run this code. `saga_id` names the pod: a pod of an older fence ends when this comes. `execution_job` and `run`
    say where its output belongs."""

    saga_id: Id
    execution_job: str
    run: int
    job: str
    fence: int
    script: str
    language: str
    timeout_seconds: float
    memory_mb: int
    user_id: str = ""
    priority: str = "NORMAL"


class DeletePodCommandEvent(Event, frozen=True, kw_only=True):
    """End the pods of this saga, and start no other."""

    saga_id: Id
    reason: str = ""


class PodOutput(Event, frozen=True, kw_only=True):
    """A part of what the code printed, from byte `start` on. `run` grows with each pod of the execution."""

    execution_job: str
    run: int
    start: int
    stream: str
    text: str


Command = CreatePodCommandEvent | DeletePodCommandEvent
Outcome = ExecutionCompleted | ExecutionFailed | ExecutionTimeout
_requests: Final = msgspec.json.Decoder(ExecutionRequested | ExecutionCancelled)
_commands: Final = msgspec.json.Decoder(Command)
_outcomes: Final = msgspec.json.Decoder(Outcome)
_output: Final = msgspec.json.Decoder(PodOutput)


def message_of(event: Event, id_: str) -> Outgoing:
    """The message of an event. Those of one execution keep their order."""
    return Outgoing(body=msgspec.json.encode(event), id=id_, key=event.execution_id)


def read_command(body: bytes) -> Command:
    """The command in a message. Raises BadInput if there is none."""
    return _read(_commands, body)  # type: ignore[no-any-return]


def read_output(body: bytes) -> PodOutput:
    """The part of the output in a message. Raises BadInput if there is none."""
    return _read(_output, body)  # type: ignore[no-any-return]


def read_request(message: Message) -> Submit | Cancel:
    """What a message of the topic `executions.requested` asks for, as a bridge takes it: the execution's id is the
    idempotency key of its job."""
    event = _read(_requests, message.body)
    if isinstance(event, ExecutionCancelled):
        return Cancel(key=event.execution_id, note=event.reason)
    return submit_of(event)


def submit_of(event: ExecutionRequested) -> Submit:
    """The job of a request. Raises BadInput if its priority is none."""
    if event.priority.upper() not in PRIORITIES:
        raise BadInput(f"priority {event.priority!r:.40}: write {', '.join(PRIORITIES)}")
    args: dict[str, Any] = {"script": event.script, "language": event.language}
    if event.timeout_seconds is not None:
        args["timeout_seconds"] = event.timeout_seconds
    return Submit(
        args=args, key=event.execution_id, priority=event.priority.lower(), owner=event.user_id or None
    )  # fmt: skip


def read_outcome(message: Message) -> Completed | Failed:
    """What the outcome of a pod means for the job that created it. Code that fails or takes too long has run to its end
    all the same: only a pod that failed itself is worth another attempt."""
    event: Outcome = _read(_outcomes, message.body)
    if isinstance(event, ExecutionFailed) and event.exit_code is None:
        return Failed(job=event.job, fence=event.fence, error=event.error or "the pod failed")
    return Completed(job=event.job, fence=event.fence, result={"outcome": report_of(event)})


def report_of(event: Outcome) -> dict[str, Any]:
    """An outcome as an execution keeps it. A step of a saga may return 64 KiB, so long output is cut off; the log of
    the execution has it all."""
    status = {"ExecutionCompleted": "completed", "ExecutionFailed": "failed", "ExecutionTimeout": "timeout"}
    return {
        "status": status[type(event).__name__], "exit_code": event.exit_code, "stdout": cut_off(event.stdout),
        "stderr": cut_off(event.stderr), "execution_time": event.seconds, "error": cut_off(event.error, 2000),
    }  # fmt: skip


def cut_off(text: str, limit: int = MAX_REPORTED) -> str:
    """The text, or as much of it as has `limit` bytes as JSON, and a line that says how much is missing."""
    kept = text
    while (size := len(msgspec.json.encode(kept))) > limit:
        kept = kept[: len(kept) * limit // (size + 1)]
    if len(kept) == len(text):
        return text
    return f"{kept}\n... {len(text) - len(kept):,} characters are in the log of the execution"


def _read(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"the message is no event of this system: {error}") from None

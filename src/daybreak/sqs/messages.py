"""What is in a message: JSON objects with a version `v`, told apart by `kind`. `docs/reference/sqs.md` describes them.

A reader ignores fields that it does not know, and refuses another version. Bytes are base64."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct

from daybreak.core.errors import BadInput
from daybreak.core.model import (
    Cancelled,
    Detached,
    Done,
    Ending,
    Failed,
    Failure,
    HandedBack,
    JobSpec,
    Lost,
    Suspended,
    TimedOut,
)

VERSION: Final = 1
MAX_INLINE_BYTES: Final = 200_000  # of encoded arguments, results and checkpoints; more go by claim check


class Payload(Struct, frozen=True, omit_defaults=True):
    """Bytes in the message itself, or the digest of a content in the place of contents."""

    data: bytes | None = None
    digest: str | None = None


class _Message(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    v: int = VERSION


class TaskMessage(_Message, frozen=True, tag="task"):
    """Ledger to worker, in a task queue: run this job. `job` is the job as it was submitted, without its arguments.

    `ledger` names the store that sent it. `limit` is the time limit in seconds. A message that is older than
    `valid_for` seconds is not run: the ledger may have taken the job back."""

    v: int
    ledger: str
    task_id: str
    fence: int
    attempt: int
    job: JobSpec
    args: Payload
    seq: int
    priority: int
    valid_for: float
    created_at: str
    lost: int = 0
    timeouts: int = 0
    limit: float | None = None
    checkpoint: Payload | None = None


class Delivery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One delivery of a task message to one worker. `nonce` is new for each; the ledger accepts one of them."""

    ledger: str
    task_id: str
    fence: int
    nonce: str
    worker_id: str
    heartbeat: float


class Started(_Message, frozen=True, tag="started"):
    """Worker to ledger: the job begins."""

    v: int
    delivery: Delivery
    status: Literal["In-progress"] = "In-progress"


class Beating(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a heartbeat says of one delivery. `n` counts the checkpoints of the delivery."""

    delivery: Delivery
    progress: float | None = None
    message: str = ""
    alone: bool | None = None
    checkpoint: Payload | None = None
    n: int = 0


class Heartbeat(_Message, frozen=True, tag="heartbeat"):
    """Worker to ledger: these deliveries run."""

    v: int
    beats: tuple[Beating, ...]


class Ended(_Message, frozen=True, tag="outcome"):
    """Worker to ledger, in the status queue or, for a recoverable failure, in the retry queue: how a delivery ended.

    `how` is one of done, failed, timed out, lost, cancelled, suspended, handed back, detached; `delay` is the
    deadline of a detached one."""

    v: int
    delivery: Delivery
    how: str
    status: Literal["Completed", "Failed", "Pending", "In-progress"]
    failure_reason: str = ""
    ran: float = 0.0
    result: Payload | None = None
    note: str = ""
    failure: Failure | None = None
    stack: str = ""
    alone: bool = False
    by: str = ""
    checkpoint: Payload | None = None
    delay: float | None = None
    unused: bool = False


class Returned(_Message, frozen=True, tag="returned"):
    """Worker to ledger: a task message that must not be run any more, because it was delivered before (`redelivered`)
    or is too old (`late`)."""

    v: int
    delivery: Delivery
    why: Literal["redelivered", "late"]


class WorkerBeat(_Message, frozen=True, tag="worker"):
    """Worker to ledger: I am here. `record` is the worker's record, as `daybreak workers` shows it; with `gone`, the
    worker has stopped."""

    v: int
    record: dict[str, Any]
    gone: bool = False


class Request(_Message, frozen=True, tag="request"):
    """Ledger to one worker, in its control queue. `drop`: the delivery no longer counts."""

    v: int
    task_id: str
    fence: int
    nonce: str
    what: Literal["cancel", "suspend", "preempt", "drop"]


class SetAside(_Message, frozen=True, tag="aside"):
    """A message that could not be applied, with the reason."""

    v: int
    queue: str
    reason: str
    body: str


FromWorker = Started | Heartbeat | Ended | Returned | WorkerBeat
M = TypeVar("M")

_encoder: Final = msgspec.json.Encoder()
_from_worker: Final[msgspec.json.Decoder[FromWorker]] = msgspec.json.Decoder(FromWorker)
_task: Final = msgspec.json.Decoder(TaskMessage)
_request: Final = msgspec.json.Decoder(Request)
_aside: Final = msgspec.json.Decoder(SetAside)


def written(message: Struct) -> str:
    return _encoder.encode(message).decode()


def read_task(body: str) -> TaskMessage:
    return _read(_task, body)


def read_from_worker(body: str) -> FromWorker:
    return _read(_from_worker, body)


def read_request(body: str) -> Request:
    return _read(_request, body)


def read_aside(body: str) -> SetAside:
    return _read(_aside, body)


class _Version(Struct):
    v: int


def _read(decoder: msgspec.json.Decoder[M], body: str) -> M:
    """The message. Raises BadInput with what is wrong."""
    try:
        version = msgspec.json.decode(body, type=_Version).v
        if version != VERSION:
            raise BadInput(f"it has version {version!r}, and this program reads version {VERSION}")
        return decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"it is not a message of Daybreak: {error}") from None


# -- outcomes ----------------------------------------------------------------------------------------------------------

_STATUS: Final = {
    "done": "Completed", "handed back": "Pending", "suspended": "Pending", "lost": "Pending", "detached": "In-progress",
}  # fmt: skip


def ended(delivery: Delivery, outcome: Ending, payload: Payload | None, checkpoint: Payload | None) -> Ended:
    """The message of an outcome. `payload` is its result, and `checkpoint` the latest checkpoint of the delivery."""
    how, fields = _fields(outcome)
    return Ended(
        v=VERSION,
        delivery=delivery,
        how=how,
        status=_STATUS.get(how, "Failed"),  # type: ignore[arg-type]
        result=payload,
        checkpoint=checkpoint if how in ("handed back", "suspended") else None,
        **fields,
    )


def _fields(outcome: Ending) -> tuple[str, dict[str, Any]]:
    match outcome:
        case Done(_, ran, note):
            return "done", {"ran": ran, "note": note}
        case Failed(failure, ran):
            return "failed", {"failure": failure, "ran": ran, "failure_reason": str(failure)}
        case TimedOut(after, story, stack):
            reason = story or f"it ran longer than {after.total_seconds():g} s"
            return "timed out", {"ran": after.total_seconds(), "note": story, "stack": stack, "failure_reason": reason}
        case Lost(detail, alone):
            return "lost", {"note": detail, "alone": alone, "failure_reason": detail}
        case Cancelled(by):
            return "cancelled", {"by": by}
        case Suspended(note):
            return "suspended", {"note": note}
        case Detached(deadline):
            return "detached", {"delay": deadline.total_seconds()}
        case HandedBack(delay=delay, unused=unused):
            return "handed back", {"delay": None if delay is None else delay.total_seconds(), "unused": unused}


def outcome_of(message: Ended, result: bytes | None, checkpoint: bytes | None) -> Ending:
    """The outcome that a message tells of. Raises BadInput for one that makes no sense."""
    match message.how:
        case "done":
            return Done(result, message.ran, message.note)
        case "failed":
            return Failed(message.failure or Failure(message="it failed without an error"), message.ran)
        case "timed out":
            return TimedOut(timedelta(seconds=message.ran), message.note, message.stack)
        case "lost":
            return Lost(message.note, message.alone)
        case "cancelled":
            return Cancelled(message.by)
        case "suspended":
            return Suspended(message.note, checkpoint)
        case "handed back":
            delay = None if message.delay is None else timedelta(seconds=message.delay)
            return HandedBack(checkpoint, delay, message.unused)
        case "detached":
            return Detached(timedelta(seconds=message.delay or 0.0))
        case _:
            raise BadInput(f"how={message.how!r:.40} is no way in which a delivery ends")

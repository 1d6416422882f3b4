"""The messages between supervisor and child: msgpack frames over a socket, each with a batch of work or outcomes.

Messages about a job carry its fence: a worker that was suspended may claim a job again while its older run still runs
in the same child, and what the older run does must not count for the new lease."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from daybreak.core.model import Failure

_LENGTH: Final = struct.Struct("!I")

StopReason = Literal["cancel", "suspend", "timeout", "lost", "shutdown"]


# -- to the child ------------------------------------------------------------------------------------------------------


class Hello(Struct, array_like=True, tag=0, kw_only=True):
    """The first message to a child process. `target` and `imports` say where the user's code is; `shared` is what the
    lifespan returned."""

    target: str
    imports: list[str]
    path: list[str]
    url: str
    shared: bytes
    slots: int
    is_async: bool
    commands: bool
    log_level: int
    scratch: str
    files: str = ""  # the URL of the place where contents are kept; empty if that is the store


class Work(Struct, array_like=True, gc=False):
    """What a child needs to run the job of one lease. `trace` is the `traceparent` of the attempt's span."""

    seq: int
    job: str
    task: str
    version: int
    args: bytes
    queue: str
    priority: int
    attempt: int
    max_attempts: int
    fence: int
    checkpoint: bytes | None = None
    tags: tuple[str, ...] = ()
    meta: dict[str, str] | None = None
    owner: str | None = None
    run: str | None = None
    trace: str | None = None


class Run(Struct, array_like=True, tag=1):
    """Run these jobs."""

    batch: list[Work]


class Stop(Struct, array_like=True, tag=2):
    """Ask a job to end."""

    seq: int
    fence: int
    reason: StopReason


class CheckpointSaved(Struct, array_like=True, tag=3):
    """The checkpoint with this token is durable; with `held` False it was not written, because the lease was lost."""

    seq: int
    token: int
    held: bool


class Recall(Struct, array_like=True, tag=4):
    """Return the work that has not started."""


class Exit(Struct, array_like=True, tag=5):
    """No more work will come: exit."""


class GetStack(Struct, array_like=True, tag=6):
    """Send the stack of a running job."""

    seq: int
    fence: int


class FileMoved(Struct, array_like=True, tag=7):
    """The answer to `MoveFile` with the same token; `error` is empty if the content was copied."""

    seq: int
    token: int
    error: str = ""
    is_permanent: bool = False


class RunCall(Struct, array_like=True, tag=8):
    """Run these jobs of a batch task in one call of its function."""

    call: list[Work]

    @property
    def priority(self) -> int:
        return self.call[0].priority


ToChild = Hello | Run | Stop | CheckpointSaved | Recall | Exit | GetStack | FileMoved | RunCall


# -- to the supervisor -------------------------------------------------------------------------------------------------


class Ready(Struct, array_like=True, tag=0):
    """The user's code is imported and set up; these tasks were found."""

    tasks: list[tuple[str, int]]


class SetupFailed(Struct, array_like=True, tag=1):
    """The user's code could not be imported or set up."""

    error: str


class Ended(Struct, array_like=True, gc=False):
    """How one job ended, as seen by the child. `at` is when, in seconds of the wall clock, if the attempt is traced;
    `detached_for` is how long the work may go on elsewhere. A job that is handed back is not claimed for `delay`."""

    seq: int
    fence: int
    status: Literal["done", "failed", "cancelled", "suspended", "timed out", "handed back", "detached"]
    ran_for: float
    result: bytes | None = None
    failure: Failure | None = None
    note: str = ""
    at: float = 0.0
    detached_for: timedelta | None = None
    delay: timedelta | None = None


class Report(Struct, array_like=True, tag=2):
    """These jobs have ended."""

    ended: list[Ended]


class Progress(Struct, array_like=True, tag=3):
    """How far a running job is, from 0 to 1."""

    seq: int
    fence: int
    fraction: float
    message: str


class SaveCheckpoint(Struct, array_like=True, tag=4):
    """Make this checkpoint durable and answer with `CheckpointSaved` and the same token."""

    seq: int
    fence: int
    token: int
    checkpoint: bytes


class Returned(Struct, array_like=True, tag=5):
    """The answer to `Recall`: the child has not started these jobs, by seq and fence, and will not start them."""

    jobs: list[tuple[int, int]]


class LogLine(Struct, array_like=True, tag=6):
    """A log line of a job, for the logging of the supervisor."""

    level: int
    line: str


class Stack(Struct, array_like=True, tag=7):
    """The stack of a job, formatted like a traceback."""

    seq: int
    fence: int
    text: str


class MoveFile(Struct, array_like=True, tag=9):
    """Copy a content from the store to the cache of this machine, or `up` to the store; answer with `FileMoved`."""

    seq: int
    fence: int
    token: int
    digest: str
    up: bool


class Output(Struct, array_like=True, tag=10):
    """What a job printed or logged, as UTF-8. `skipped` bytes before it were left out."""

    seq: int
    fence: int
    data: bytes
    skipped: int


class ListenerThread(Struct, array_like=True, tag=8):
    """The native id of the thread in which a child reads messages: its activity is not that of a job."""

    thread: int


ToSupervisor = (
    Ready
    | SetupFailed
    | Report
    | Progress
    | SaveCheckpoint
    | Returned
    | LogLine
    | Stack
    | ListenerThread
    | MoveFile
    | Output
)

_encoder = msgspec.msgpack.Encoder()
to_child: Final = msgspec.msgpack.Decoder(ToChild)
to_supervisor: Final = msgspec.msgpack.Decoder(ToSupervisor)


def frame(message: Struct) -> bytes:
    """A message as bytes, with its length in front."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Splits a stream of bytes into messages."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[Any]) -> None:
        self._decoder = decoder
        self._buffered = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterable[Any]:
        # Nearly every read returns exactly one whole message: decode it in place.
        if not self._buffered and len(data) > 4 and _LENGTH.unpack_from(data)[0] == len(data) - 4:
            return (self._decoder.decode(memoryview(data)[4:]),)
        return self._split(data)

    def _split(self, data: bytes | memoryview) -> Iterator[Any]:
        buffered = self._buffered
        buffered += data
        start = 0
        while len(buffered) - start >= 4:
            (length,) = _LENGTH.unpack_from(buffered, start)
            if len(buffered) - start - 4 < length:
                break
            body = bytes(memoryview(buffered)[start + 4 : start + 4 + length])
            start += 4 + length
            yield self._decoder.decode(body)
        if start:
            del buffered[:start]

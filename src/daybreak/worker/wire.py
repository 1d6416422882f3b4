"""What supervisor and child say to one another: frames of msgpack over a socket, many pieces of work in each."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from daybreak.core.model import Failure

_LENGTH: Final = struct.Struct("!I")

Why = Literal["cancel", "suspend", "timeout", "lost", "shutdown"]


# -- to the child ------------------------------------------------------------------------------------------------------


class Hello(Struct, array_like=True, tag=0, kw_only=True):
    """What a child is for. `target` and `imports` say where the user's code is, `shared` is what the lifespan gave."""

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


class Work(Struct, array_like=True, gc=False):
    """One lease's work."""

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


class Run(Struct, array_like=True, tag=1):
    works: list[Work]


class Stop(Struct, array_like=True, tag=2):
    """Ask a job to end."""

    seq: int
    why: Why


class Kept(Struct, array_like=True, tag=3):
    """A checkpoint is durable, or (`held` False) the lease was lost."""

    seq: int
    token: int
    held: bool


class Recall(Struct, array_like=True, tag=4):
    """Give back what has not begun."""


class Bye(Struct, array_like=True, tag=5):
    """Nothing more will come: end."""


class Where(Struct, array_like=True, tag=6):
    """Say where a job stands."""

    seq: int


ToChild = Hello | Run | Stop | Kept | Recall | Bye | Where


# -- to the supervisor -------------------------------------------------------------------------------------------------


class Ready(Struct, array_like=True, tag=0):
    """The user's code is imported and set up; these tasks were found."""

    tasks: list[tuple[str, int]]


class Broken(Struct, array_like=True, tag=1):
    """The user's code could not be imported or set up."""

    trouble: str


class Ended(Struct, array_like=True, gc=False):
    """How one piece of work ended, as the child saw it."""

    seq: int
    what: Literal["done", "failed", "cancelled", "suspended", "timed out", "handed back"]
    ran_for: float
    result: bytes | None = None
    failure: Failure | None = None
    note: str = ""


class Report(Struct, array_like=True, tag=2):
    ended: list[Ended]


class Progress(Struct, array_like=True, tag=3):
    seq: int
    fraction: float
    message: str


class Keep(Struct, array_like=True, tag=4):
    """Make this checkpoint durable, and say so under this token."""

    seq: int
    token: int
    checkpoint: bytes


class Returned(Struct, array_like=True, tag=5):
    """These were not begun and will not be."""

    seqs: list[int]


class Said(Struct, array_like=True, tag=6):
    """A line of a job's log, for the supervisor's logging to write."""

    level: int
    line: str


class Stack(Struct, array_like=True, tag=7):
    """Where a job stands, as lines of a traceback."""

    seq: int
    text: str


class Listens(Struct, array_like=True, tag=8):
    """By this thread the child hears us: what it does is no sign of its job's life."""

    thread: int


ToSupervisor = Ready | Broken | Report | Progress | Keep | Returned | Said | Stack | Listens

_encoder = msgspec.msgpack.Encoder()
to_child: Final = msgspec.msgpack.Decoder(ToChild)
to_supervisor: Final = msgspec.msgpack.Decoder(ToSupervisor)


def frame(message: Struct) -> bytes:
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Cuts a stream of bytes into messages."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[Any]) -> None:
        self._decoder = decoder
        self._rest = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterable[Any]:
        # Nearly always what comes is one message, and whole.
        if not self._rest and len(data) > 4 and _LENGTH.unpack_from(data)[0] == len(data) - 4:
            return (self._decoder.decode(memoryview(data)[4:]),)
        return self._cut(data)

    def _cut(self, data: bytes | memoryview) -> Iterator[Any]:
        rest = self._rest
        rest += data
        at = 0
        while len(rest) - at >= 4:
            (length,) = _LENGTH.unpack_from(rest, at)
            if len(rest) - at - 4 < length:
                break
            body = bytes(memoryview(rest)[at + 4 : at + 4 + length])
            at += 4 + length
            yield self._decoder.decode(body)
        if at:
            del rest[:at]

"""What messages of the incoming topic say: version 1 of the schema, plain or in the envelope of a CloudEvent.

`docs/reference/bridge.md` describes it for people, and `docs/reference/bridge-messages.json` for programs."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from daybreak.core.errors import BadInput
from daybreak.core.text import any_of
from daybreak.core.units import counted

VERSION: Final = 1
MAX_BODY: Final = 64 * 1024 * 1024  # far above what the arguments of a job may have
PREFIX: Final = "daybreak."  # the type of a CloudEvent is daybreak.submit.v1

MAX_TEXT: Final = 200
Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
Fence = Annotated[int, Meta(ge=1)]  # the number that ctx.fence gave to an attempt


class _Message(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """`id` is the message's own: the same message is handled once. Without it, the id or position that the broker
    knows counts."""

    version: Literal[1] = VERSION
    id: Text | None = None


class Submit(_Message, frozen=True, kw_only=True, tag="submit"):
    """Submit a job of the bridge's task. Without a `key`, the identity of the message is the job's key."""

    args: dict[str, Any] = {}
    task: Text | None = None
    key: Text | None = None
    priority: int | Text | None = None
    delay: Text | None = None
    expires_in: Text | None = None
    owner: Text | None = None
    tags: list[Text] = []
    meta: dict[str, Any] = {}


class _AboutJob(_Message, frozen=True, kw_only=True):
    """Which job: by its id or by its key."""

    job: Text | None = None
    key: Text | None = None


class Cancel(_AboutJob, frozen=True, kw_only=True, tag="cancel"):
    """Cancel a job. A running one is asked to stop."""

    note: Annotated[str, Meta(max_length=1000)] = ""


class Completed(_AboutJob, frozen=True, kw_only=True, tag="completed"):
    """The work of a job that went on elsewhere is done. `fence` names the attempt; without it, the one that is detached
    now is ended."""

    fence: Fence | None = None
    result: Any = None


class Failed(_AboutJob, frozen=True, kw_only=True, tag="failed"):
    """The work of a job that went on elsewhere failed. Policy decides whether it is retried, unless the failure is
    `permanent`."""

    fence: Fence | None = None
    error: Annotated[str, Meta(max_length=10_000)] = ""
    permanent: bool = False


class TimedOut(_AboutJob, frozen=True, kw_only=True, tag="timeout"):
    """The work of a job that went on elsewhere took too long there."""

    fence: Fence | None = None
    note: Annotated[str, Meta(max_length=1000)] = ""


Finish = Cancel | Completed | Failed | TimedOut
Incoming = Submit | Cancel | Completed | Failed | TimedOut
KINDS: Final = ("submit", "cancel", "completed", "failed", "timeout")


class _Plain(Struct):
    """The fields that are looked at first."""

    version: Any = None
    kind: Any = None
    specversion: Any = None


class _Envelope(Struct):
    """The attributes of a CloudEvent that are read; others are ignored."""

    specversion: str
    type: str
    id: str
    source: str
    data: msgspec.Raw = msgspec.Raw(b"{}")
    data_base64: str | None = None


_decoder: Final[msgspec.json.Decoder[Incoming]] = msgspec.json.Decoder(Incoming)


def read_message(body: bytes) -> Incoming:
    """What a message says. Raises BadInput if it says nothing that a bridge understands."""
    if not body:
        raise BadInput("the message is empty")
    if len(body) > MAX_BODY:
        raise BadInput(f"the message has {counted(len(body), 'byte')}; the limit is {MAX_BODY:,}")
    first = _decoded(body, _Plain)
    if first.specversion is not None:
        return _from_envelope(_decoded(body, _Envelope))
    if first.version is None:
        raise BadInput('the message has no "version"; write {"version": 1, "kind": "submit", "args": {...}}')
    return _read(body, first.version, first.kind)


def read_arguments(body: bytes) -> Submit:
    """The whole message is the arguments of a job."""
    return Submit(args=_decoded(body, dict[str, Any]))


def _from_envelope(envelope: _Envelope) -> Incoming:
    kind, _, version = envelope.type.removeprefix(PREFIX).rpartition(".v")
    if envelope.specversion != "1.0":
        raise BadInput(f"the CloudEvent has specversion {envelope.specversion!r:.20}; this bridge reads 1.0")
    if not envelope.type.startswith(PREFIX) or not version.isdecimal():
        raise BadInput(f"the CloudEvent has type {envelope.type!r:.80}; a bridge reads {PREFIX}submit.v1 and the like")
    if envelope.data_base64 is not None:
        raise BadInput("the CloudEvent has data_base64; write the data as a JSON object in data")
    fields = _decoded(bytes(envelope.data), dict[str, Any])
    fields.setdefault("id", _identity(envelope))
    body = msgspec.json.encode({**fields, "kind": kind, "version": int(version)})
    return _read(body, int(version), kind)


def _identity(envelope: _Envelope) -> str:
    """What identifies a CloudEvent. Its source may be a long URL."""
    identity = f"{envelope.source} {envelope.id}"
    return identity if len(identity) <= MAX_TEXT else hashlib.sha256(identity.encode()).hexdigest()


def _read(body: bytes, version: object, kind: object) -> Incoming:
    if version != VERSION:
        raise BadInput(f"the message has version {version!r:.20}; this bridge reads version {VERSION}")
    if kind not in KINDS:
        raise BadInput(f"the message has kind {kind!r:.40}; a bridge reads {any_of(KINDS)}")
    try:
        found = _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise BadInput(f"the message is wrong: {error}") from None
    return checked(found)


def checked(found: object) -> Incoming:
    """The same, if its fields fit together. A `read` function of an app may return anything. The fields of a `Submit`
    are checked with its job."""
    if isinstance(found, Submit):
        return found
    if not isinstance(found, Cancel | Completed | Failed | TimedOut):
        raise BadInput(f"read() returned {found!r:.60}; it returns Submit, Cancel, Completed, Failed or TimedOut")
    fields = {name: getattr(found, name) for name in found.__struct_fields__ if name != "result"}
    try:
        msgspec.convert(fields, type(found))
    except msgspec.ValidationError as error:
        raise BadInput(f"the message is wrong: {error}") from None
    if (found.job is None) == (found.key is None):
        kind = found.__struct_config__.tag
        raise BadInput(f'the message of kind "{kind}" must name one job, by "job" (its id) or by "key"')
    return found


def _decoded(body: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"the message is not a JSON object of the right form: {error}") from None


def json_schema() -> dict[str, Any]:
    """The schema of plain messages, as `docs/reference/bridge-messages.json` has it."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Messages that a Daybreak bridge reads, version 1",
        **msgspec.json.schema(Incoming),
    }

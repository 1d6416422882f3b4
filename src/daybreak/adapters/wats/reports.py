"""One test report in WSJF, the JSON format of WATS. Its id is what makes a second upload harmless."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from daybreak.adapters.wats.errors import InvalidReport
from daybreak.core.errors import BadInput

MAX_REPORT_BYTES: Final = 64 * 1024 * 1024
_GUID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_NAMESPACE: Final = uuid.UUID("0c1f4f2e-3f1c-5d0a-9a43-7a1f0f3f6f11")  # of ids that are made from a content
_BOM: Final = b"\xef\xbb\xbf"


class Report(NamedTuple):
    """A report as it is sent: its id, its bytes, and what they say."""

    id: str
    content: bytes
    fields: dict[str, Any]


def report_of(source: Report | Mapping[str, Any] | bytes | os.PathLike[str]) -> Report:
    """The report in a file, in bytes or in a dict. One without an id gets an id that is made from its content, so that
    the same content is the same report however often it is uploaded."""
    if isinstance(source, Report):
        return source
    if isinstance(source, Mapping):
        return _parse(_encode(source), "the report")
    if isinstance(source, bytes | bytearray | memoryview):
        return _parse(bytes(source), "the report")
    if isinstance(source, os.PathLike):
        return _read(Path(source))
    raise BadInput(f"{source!r:.60} is no report: pass a dict, its JSON as bytes, or the path of its file as Path(...)")


def check_id(report_id: object) -> str:
    """The id of a report, which is a GUID, in lower case."""
    if not isinstance(report_id, str) or not _GUID.fullmatch(report_id):
        raise InvalidReport(f"report id {report_id!r:.80}: an id is a GUID, such as {uuid.UUID(int=1)}")
    return report_id.lower()


def contains(stored: object, sent: object) -> bool:
    """Whether the server's copy of a report says all that was sent. It may say more."""
    if isinstance(sent, dict):
        return isinstance(stored, dict) and all(_has(stored, name, value) for name, value in sent.items())
    if isinstance(sent, list):
        return isinstance(stored, list) and len(stored) == len(sent) and all(map(contains, stored, sent))
    return stored == sent


def _has(stored: dict[str, Any], name: str, value: object) -> bool:
    if name == "id" and isinstance(value, str):
        return str(stored.get(name)).lower() == value.lower()
    return contains(stored.get(name), value)


def _read(path: Path) -> Report:
    with path.open("rb") as file:
        content = file.read(MAX_REPORT_BYTES + 1)
    return _parse(content, path.name)


def _encode(fields: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(dict(fields))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidReport(f"the report cannot be written as JSON: {error}") from None


def _parse(content: bytes, what: str) -> Report:
    content = content.removeprefix(_BOM)
    if len(content) > MAX_REPORT_BYTES:
        raise InvalidReport(f"{what} is over {MAX_REPORT_BYTES // 1024 // 1024} MiB: no report is that large")
    try:
        fields = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidReport(f"{what} is no JSON ({error}): a report in WSJF is one JSON object") from None
    if not isinstance(fields, dict):
        raise InvalidReport(f"{what} is a JSON {type(fields).__name__}: a report in WSJF is one JSON object")
    if fields.get("id") in (None, ""):
        return _with_id(fields, content)
    return Report(check_id(fields["id"]), content, fields)


def _with_id(fields: dict[str, Any], content: bytes) -> Report:
    made = str(uuid.uuid5(_NAMESPACE, content.hex()))
    fields = {**fields, "id": made}
    return Report(made, msgspec.json.encode(fields), fields)

"""What a handler answers, and how it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from daybreak.api.views.scalars import finite


@dataclass(frozen=True)
class Reply:
    """An answer with a status or headers of its own. A handler that returns anything else returns its data. An answer
    that `changed` nothing, as that of a dry run, is neither audited nor kept under an idempotency key."""

    data: Any
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    changed: bool = True


def encoded(data: Any) -> bytes:
    """JSON as `--json` prints it: what JSON cannot say (NaN, infinities) is text. Bytes are JSON already."""
    if isinstance(data, bytes):
        return data
    if not isinstance(data, dict | list):
        return msgspec.json.encode(data)
    # Not msgspec: it refuses half a surrogate pair, which an old result may hold.
    written = json.dumps(finite(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return written.encode("utf-8", "backslashreplace")

"""What a handler answers, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from daybreak.api.views.scalars import finite


@dataclass(frozen=True)
class Reply:
    """An answer with a status or headers of its own. A handler that returns anything else returns its data."""

    data: Any
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def encoded(data: Any) -> bytes:
    """JSON as `--json` prints it: what JSON cannot say (NaN, infinities) is text. Bytes are JSON already."""
    if isinstance(data, bytes):
        return data
    return msgspec.json.encode(finite(data) if isinstance(data, dict | list) else data)

"""Settings that a caller wants to change."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct

from daybreak.server.problems import INVALID, Problem


def changes_of(body: Struct) -> dict[str, Any]:
    """The fields that were sent, null included; at least one."""
    found = {
        name: value for name in body.__struct_fields__ if (value := getattr(body, name)) is not UNSET
    }  # fmt: skip
    if not found:
        raise Problem(INVALID, f"nothing to change: send at least one of {', '.join(body.__struct_fields__)}")
    return found

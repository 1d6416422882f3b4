"""One thing that was looked at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """`is_well` is False for what is wrong; then `cure` says what to do."""

    what: str
    is_well: bool = False
    cure: str = ""


def well(what: str) -> Finding:
    return Finding(what, is_well=True)

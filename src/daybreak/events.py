"""Events: facts about a job, numbered without gaps. Defined in `daybreak.core.events`."""

from daybreak.core.events import (
    KEPT,
    KINDS,
    LONG,
    Event,
    Folded,
    decode_lines,
    encode,
    fold,
    last_holder,
    last_holder_in,
    settled,
    shortened,
    submitted,
    told_by,
)

__all__ = [
    "KEPT",
    "KINDS",
    "LONG",
    "Event",
    "Folded",
    "decode_lines",
    "encode",
    "fold",
    "last_holder",
    "last_holder_in",
    "settled",
    "shortened",
    "submitted",
    "told_by",
]

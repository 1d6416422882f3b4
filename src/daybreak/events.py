"""Events: facts about a job, numbered without gaps. Defined in `daybreak.core.events`."""

from daybreak.core.events import (
    FOLD_FROM,
    KEPT_UNFOLDED,
    KINDS,
    Event,
    Folded,
    decode_lines,
    encode,
    ends_job,
    fold,
    last_holder,
    last_holder_in,
    record_event,
    settled,
    shorten_history,
    submitted,
)

__all__ = [
    "FOLD_FROM",
    "KEPT_UNFOLDED",
    "KINDS",
    "Event",
    "Folded",
    "decode_lines",
    "encode",
    "ends_job",
    "fold",
    "last_holder",
    "last_holder_in",
    "record_event",
    "settled",
    "shorten_history",
    "submitted",
]

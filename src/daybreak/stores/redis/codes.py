"""The numbers of states, reasons, kinds and marks in scripts and stored rows; the same as in prelude.lua."""

from __future__ import annotations

from typing import Final

from daybreak.core.model import Reason, State
from daybreak.store.protocol import Verdict

STATES: Final = (
    State.SCHEDULED, State.BLOCKED, State.QUEUED, State.RUNNING, State.SUSPENDED, State.COMPLETED, State.FAILED,
    State.CANCELLED,
)  # fmt: skip
STATE: Final = {state: code for code, state in enumerate(STATES)}
REASONS: Final = (
    None, Reason.ERROR, Reason.EXHAUSTED, Reason.TIMEOUT, Reason.EXPIRED, Reason.SHED, Reason.LOST, Reason.UPSTREAM,
)  # fmt: skip
REASON: Final = {reason: code for code, reason in enumerate(REASONS)}
# Stored in rows: a kind keeps its number forever, new ones are appended.
KINDS: Final = (
    "submitted", "due", "started", "progress", "retrying", "released", "completed", "failed", "cancelled", "suspended",
    "resumed", "reprioritised", "expired", "shed", "lease_expired", "cancel_requested", "suspend_requested",
    "retried", "removed", "folded", "moved", "blocked", "unblocked", "breaker_opened", "breaker_closed",
    "breaker_probing", "queue_full", "queue_empty", "saga_stuck", "detached", "batch_started", "batch_completed",
)  # fmt: skip
KIND: Final = {kind: code for code, kind in enumerate(KINDS)}
VERDICTS: Final = (
    Verdict.NEW, Verdict.DUPLICATE, Verdict.CONFLICT, Verdict.FULL, Verdict.SPENT, Verdict.FOLLOWS, Verdict.CACHED,
)  # fmt: skip
SAME: Final = ("", "id", "key", "unique")
BY_KEY: Final = 2
EVICTED: Final = 4  # takes the place of SAME: the job is new, and another one was shed for it
ON_CONFLICT: Final = {"return": 1, "replace": 2, "raise": 3, "refuse": 4}

RETRIES: Final = 0x8000  # added to the index of a need: blocked because its retries are limited
NO_STATE: Final = 255
NO_PRIORITY: Final = 255
NO_ATTEMPT: Final = 0xFFFF_FFFF
NONE: Final = -1

# Flags of a lease.
CANCELLING, SUSPENDING, REAPED, ALONE, CALLED, AHEAD, CHOSEN, REPEATS = 1, 2, 4, 8, 16, 32, 64, 128
DETACHED, GROUPED = 256, 512
# What is stored in separate hashes of a job.
CHECKPOINT, FAILURE, NOTE, PROGRESS, RESULT, TIES, EXPIRY, NEEDS = 1, 2, 4, 8, 16, 32, 64, 128
FLIGHT, FOLLOWS, POINTS, BATCH = 256, 512, 1024, 2048
# The clock of a delay.
STEADY, WALL = 1, 2
# Parts that are sent with a settlement.
HAS_RESULT, HAS_FAILURE, HAS_CHECKPOINT, HAS_NOTE, IS_UNUSED, IS_UNKEPT = 1, 2, 4, 8, 16, 32

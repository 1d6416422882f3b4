"""Which event may follow which state: the table by which every history is judged."""

from __future__ import annotations

from typing import Final

from daybreak.core.model import FINAL, UNFINISHED, WAITING, State

KNOWN_RESULT: Final = "completed with the result of another"
_BACK: Final = frozenset({State.QUEUED, State.SCHEDULED})
_RUNS: Final = frozenset({State.RUNNING})
_NONE: Final[frozenset[State | None]] = frozenset({None})

# kind: (states before, states the event may name); None in the second means that it names no state.
TABLE: Final[dict[str, tuple[frozenset[State | None], frozenset[State | None]]]] = {
    "submitted": (_NONE, _BACK),
    "due": (frozenset({State.SCHEDULED}), frozenset({State.QUEUED})),
    "started": (frozenset({State.QUEUED}), _RUNS),
    "lease_expired": (_RUNS, _NONE),
    "cancel_requested": (_RUNS, _NONE),
    "suspend_requested": (_RUNS, _NONE),
    "resumed": (frozenset({State.SUSPENDED, State.RUNNING}), _BACK | _NONE),
    "retrying": (_RUNS, _BACK),
    "released": (_RUNS, _BACK),
    "completed": (_RUNS, frozenset({State.COMPLETED})),
    "failed": (_RUNS, frozenset({State.FAILED})),
    "cancelled": (UNFINISHED, frozenset({State.CANCELLED})),
    "suspended": (UNFINISHED - {State.SUSPENDED}, frozenset({State.SUSPENDED})),
    "reprioritised": (WAITING, _NONE),
    "expired": (WAITING, frozenset({State.FAILED})),
    "retried": (FINAL, frozenset({State.QUEUED})),
    "removed": (FINAL, _NONE),
    "blocked": (frozenset({State.QUEUED}), frozenset({State.BLOCKED})),
    "unblocked": (frozenset({State.BLOCKED}), frozenset({State.QUEUED})),
    "batch_started": (_RUNS, _NONE),
    "batch_completed": (_RUNS, _NONE),
    KNOWN_RESULT: (WAITING - {State.SUSPENDED}, frozenset({State.COMPLETED})),
}

# Which operation may write which event: nothing changes by itself.
WRITERS: Final[dict[str, frozenset[str]]] = {
    "submitted": frozenset({"insert", "exchange"}),
    "due": frozenset({"exchange", "advance", "amend"}),
    "started": frozenset({"exchange"}),
    "lease_expired": frozenset({"reap"}),
    "cancel_requested": frozenset({"amend"}),
    "suspend_requested": frozenset({"amend"}),
    "resumed": frozenset({"amend"}),
    "retrying": frozenset({"exchange"}),
    "released": frozenset({"exchange"}),
    "completed": frozenset({"exchange"}),
    "failed": frozenset({"exchange"}),
    "cancelled": frozenset({"exchange", "amend", "insert"}),
    "suspended": frozenset({"exchange", "amend"}),
    "reprioritised": frozenset({"amend", "insert", "exchange", "advance"}),
    "expired": frozenset({"exchange", "advance"}),
    "retried": frozenset({"amend"}),
    "removed": frozenset({"amend"}),
    "blocked": frozenset({"insert", "exchange", "advance", "amend"}),
    "unblocked": frozenset({"exchange", "advance", "amend", "insert"}),
    "batch_started": frozenset({"exchange"}),
    "batch_completed": frozenset({"exchange"}),
    KNOWN_RESULT: frozenset({"insert", "exchange", "advance", "amend"}),
    "progress": frozenset({"extend"}),
}

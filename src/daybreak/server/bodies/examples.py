"""An example of every body that the reference shows. A test decodes each by its struct."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from daybreak.server.bodies.base import EXAMPLE_ID, ProblemBody
from daybreak.server.bodies.cache import CacheBody, ClearBody, InvalidateBody
from daybreak.server.bodies.detached_jobs import ExtendBody, FinishBody, FinishedBody
from daybreak.server.bodies.health import Health, Readiness
from daybreak.server.bodies.job_changes import BulkAnswer, BulkBody, Changed, JobReleaseBody, NoteBody, PriorityBody
from daybreak.server.bodies.jobs import JobBody
from daybreak.server.bodies.locks import ReleaseBody
from daybreak.server.bodies.queues import QueueChanges
from daybreak.server.bodies.resources import ResourceChanges
from daybreak.server.bodies.runs import RowPage, RunBody, RunChanged, RunRetryBody
from daybreak.server.bodies.sagas import SagaStart
from daybreak.server.bodies.sign_in import SessionBody
from daybreak.server.bodies.submissions import BatchBody, SubmitBody, Submitted

EXAMPLES: Final[dict[type[Struct], Any]] = {
    ProblemBody: {
        "type": "urn:daybreak:problem:not-found",
        "title": "The requested object does not exist",
        "status": 404,
        "detail": f"no job {EXAMPLE_ID}: it was never submitted to this store, or it was removed",
    },
    Health: {"status": "pass"},
    Readiness: {
        "status": "warn",
        "checks": [
            {"name": "store", "status": "pass", "reason": "the sqlite store answers"},
            {"name": "workers", "status": "warn", "reason": "no live worker, and 3 jobs wait"},
        ],
    },
    SessionBody: {"by": "ann", "kind": "token", "roles": ["read", "submit"], "queues": ["mail"], "csrf": None},
    JobBody: {
        "id": EXAMPLE_ID,
        "task": "send_mail",
        "version": 1,
        "queue": "mail",
        "priority": 5,
        "state": "completed",
        "reason": None,
        "attempt": 1,
        "max_attempts": 3,
        "retries": 0,
        "args": {"to": "ann@example.com"},
        "result": {"sent": True},
        "error": None,
        "progress": None,
        "fence": 1,
        "run": None,
        "owner": None,
        "key": None,
        "tags": [],
        "meta": {},
        "resources": [],
        "worker": "mailer-1",
        "detached_until": None,
        "cached_from": None,
        "created_at": "2026-01-31T18:00:00Z",
        "updated_at": "2026-01-31T18:00:02Z",
        "run_at": None,
        "started_at": "2026-01-31T18:00:01Z",
        "finished_at": "2026-01-31T18:00:02Z",
        "expires_at": None,
        "waited_for": 1.0,
        "ran_for": 1.0,
    },
    SubmitBody: {"task": "send_mail", "args": {"to": "ann@example.com"}, "queue": "mail", "priority": "high"},
    Submitted: {"id": EXAMPLE_ID, "state": "queued", "position": 0, "created": True},
    BatchBody: {"jobs": [{"task": "send_mail", "args": {"to": "ann@example.com"}}]},
    NoteBody: {"note": "the mail server is down"},
    JobReleaseBody: {"note": "its machine is frozen", "charge": False},
    FinishBody: {"fence": 1, "result": {"pages": 3}},
    FinishedBody: {"id": EXAMPLE_ID, "state": "completed", "attempt": 1, "fence": 1, "repeated": False},
    ExtendBody: {"deadline": "24h", "fence": 1},
    PriorityBody: {"priority": "critical"},
    Changed: {"id": EXAMPLE_ID, "verdict": "done", "state": "queued"},
    BulkBody: {"action": "retry", "filter": {"queue": "mail", "reason": "exhausted"}, "dry_run": True},
    BulkAnswer: {
        "action": "retry", "dry_run": True, "matching": 3, "changed": 0, "by_state": {"failed": 3}, "jobs": None,
    },
    RunBody: {
        "name": "overnight",
        "label": "overnight",
        "task": "simulate",
        "version": 1,
        "epoch": 1,
        "state": "running",
        "total": 1000,
        "done": 247,
        "jobs": {
            "scheduled": 0, "blocked": 0, "queued": 749, "running": 4, "suspended": 0, "completed": 246, "failed": 1,
            "cancelled": 0,
        },
        "failed": {"exhausted": 1},
        "orphaned": 0,
        "created_at": "2026-01-31T18:00:00Z",
        "started_at": "2026-01-31T18:00:00Z",
        "finished_at": None,
        "took": None,
        "by": "ann@lab",
        "queue": "default",
        "priority": 5,
        "options": {},
        "columns": ["vin", "duty"],
        "fixed": {"model": "'buck.plecs'"},
        "code": "3.11-8f14e45fceea167a",
        "note": "",
        "eta": {"low": "2026-02-01T04:10:00Z", "mid": "2026-02-01T04:40:00Z", "high": "2026-02-01T05:30:00Z"},
    },
    RowPage: {
        "rows": [
            {
                "point": 246, "vin": 24.0, "duty": 0.5, "vout": 12.0, "state": "completed", "error": None,
                "ran_for": 31.2, "job": EXAMPLE_ID,
            },
        ],
        "cursor": None,
    },
    RunRetryBody: {"state": "failed"},
    RunChanged: {"run": "overnight", "changed": 3},
    SagaStart: {"saga": "execute", "context": {"image": "python"}, "id": "order-17"},
    QueueChanges: {"max_running": 4, "discipline": "aging", "patience": "10m"},
    InvalidateBody: {"task": "simulate", "dry_run": True},
    ClearBody: {"dry_run": True},
    CacheBody: {
        "entries": 1000, "bytes": 81920, "hits": 1247, "cached": 1240, "followed": 7, "computed": 1000,
        "hit_rate": 0.554962, "saved": 9976.0, "is_exact": True,
        "tasks": [
            {
                "task": "simulate", "entries": 1000, "bytes": 81920, "hits": 1247, "cached": 1240, "followed": 7,
                "computed": 1000, "hit_rate": 0.554962, "saved": 9976.0,
            },
        ],
    },
    ResourceChanges: {"slots": 2, "rate": "10/s", "burst": 5},
    ReleaseBody: {"owner": "pr-812"},
}  # fmt: skip

"""Events of jobs as CloudEvents 1.0, in JSON."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from daybreak.core.events import Event
from daybreak.core.model import Job
from daybreak.feeds.bridge.channels.channel import Outgoing

TYPE: Final = "daybreak.job."
CONTENT_TYPE: Final = "application/cloudevents+json"
DATA_VERSION: Final = 1
DATA_SCHEMA: Final = f"urn:daybreak:job-event:{DATA_VERSION}"
_FIELDS: Final = (
    "state", "reason", "task", "queue", "priority", "attempt", "fence", "run_at", "progress", "deadline", "run",
    "owner",
)  # fmt: skip


def event_id(event: Event) -> str:
    """The same each time the event is sent. Progress has no number of its own, so its time tells it apart."""
    base = f"{event.job}.{event.n}"
    return f"{base}.{event.at.isoformat()}" if event.kind == "progress" else base


def cloud_event(event: Event, source: str, job: Job | None = None) -> Outgoing:
    """A message about an event. `job` is as the store has it now, for what never changes: its key."""
    data: dict[str, Any] = {"version": DATA_VERSION, "job": event.job, "n": event.n, "kind": event.kind}
    data |= {name: value for name in _FIELDS if (value := getattr(event, name)) is not None}
    data |= {name: value for name in ("by", "note", "error") if (value := getattr(event, name))}
    if job is not None and job.spec.key is not None:
        data["key"] = job.spec.key
    envelope = {
        "specversion": "1.0", "id": event_id(event), "source": source, "type": TYPE + event.kind,
        "subject": event.job, "time": event.at, "datacontenttype": "application/json", "dataschema": DATA_SCHEMA,
        "partitionkey": event.job, "sequence": f"{event.n:010}", "data": data,
    }  # fmt: skip
    return Outgoing(
        body=msgspec.json.encode(envelope), id=event_id(event), key=event.job, content_type=CONTENT_TYPE
    )  # fmt: skip

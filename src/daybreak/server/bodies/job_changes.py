"""Changes of one job, and of many at once."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from daybreak.server.bodies.base import Answer, Cluster, Name, Note, Past, PriorityValue, ReasonName, Request, StateName


class NoteBody(Request, frozen=True):
    """`note` says why; it is kept in the job's history."""

    note: Note = ""


class JobReleaseBody(NoteBody, frozen=True):
    """With `charge` the interrupted attempt counts; without it does not."""

    charge: bool = False


class PriorityBody(Request, frozen=True):
    priority: PriorityValue


class Changed(Answer, frozen=True):
    """`done`: the job was changed. `requested`: the job is running, and the change was requested."""

    id: str
    verdict: Literal["done", "requested", "refused", "missing"]
    state: StateName | None


class FilterBody(Request, frozen=True):
    """Selects jobs. At least one field is needed."""

    state: Annotated[list[StateName], Meta(max_length=8)] = []
    reason: ReasonName | None = None
    queue: Name | None = None
    task: Name | None = None
    run: Name | None = None
    owner: Name | None = None
    key: Name | None = None
    priority: PriorityValue | None = None
    tag: Name | None = None
    since: Past | None = None
    until: Past | None = None
    cluster: Cluster | None = None


class BulkBody(Request, frozen=True):
    """A change of many jobs, by their `ids` or by a `filter`. A filter without a state selects the usual states of the
    action: for `retry`, failed jobs. `dry_run` counts the jobs and changes nothing."""

    action: Literal["cancel", "retry", "suspend", "resume", "remove", "priority", "start-now"]
    ids: Annotated[list[Name], Meta(min_length=1, max_length=10_000)] | None = None
    filter: FilterBody | None = None
    priority: PriorityValue | None = None
    note: Note = ""
    dry_run: bool = False


class BulkAnswer(Answer, frozen=True):
    """`matching` counts the selected jobs, `changed` those that were changed or for which the change was requested.
    `jobs` is set if ids were given."""

    action: str
    dry_run: bool
    matching: int
    changed: int
    by_state: dict[str, int]
    jobs: list[Changed] | None

"""Failed jobs, grouped by cause."""

from __future__ import annotations

from daybreak.server.bodies.base import Answer, Name, Past, Request


class FailureQuery(Request, frozen=True):
    """Which failed jobs are grouped. `since` and `until` are an age, such as 12h, or an instant."""

    queue: Name | None = None
    task: Name | None = None
    run: Name | None = None
    owner: Name | None = None
    since: Past | None = None
    until: Past | None = None


class ClusterBody(Answer, frozen=True):
    """Failed jobs with one cause. `message` is without what differs from job to job; `example` is the latest job, and
    `error` and `traceback` are its own. `tasks` and `reasons` count the jobs."""

    cluster: str
    jobs: int
    kind: str
    message: str
    error: str
    traceback: str
    example: str
    first_at: str
    last_at: str
    tasks: dict[str, int]
    reasons: dict[str, int]


class FailureList(Answer, frozen=True):
    """The clusters, the largest first. `jobs` counts the failed jobs; `complete` is false if there are more than are
    read."""

    clusters: list[ClusterBody]
    jobs: int
    complete: bool

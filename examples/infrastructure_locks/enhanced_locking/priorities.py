"""Priorities: one function computes the priority of a pull request, and one admission rule guards emergencies."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from daybreak import Admission, NotAllowed, Priority

# In capitals and as a separate word: a pull request about a security group is not an emergency.
_URGENT = re.compile(r"\b(HOTFIX|SECURITY)\b")


@dataclass(frozen=True)
class Project:
    repository: str
    path: str


@dataclass(frozen=True)
class PullRequest:
    number: int
    title: str
    base_branch: str


def lock_name(project: Project, workspace: str) -> str:
    """The name of the lock: one for each repository, path and workspace."""
    return f"{project.repository}/{project.path}/{workspace}"


def determine_priority(pull: PullRequest, user: str, on_call: Collection[str]) -> Priority:
    """The priority of a pull request.

    Everybody can write a title, so a title makes an emergency only if the author is on call. For others the branch
    decides, as if the title did not have the word."""
    if _URGENT.search(pull.title) and user in on_call:
        return Priority.EMERGENCY
    if pull.base_branch in ("main", "production"):
        return Priority.CRITICAL
    if pull.base_branch.startswith("release/"):
        return Priority.HIGH
    return Priority.NORMAL


def only_on_call(on_call: Collection[str]) -> Callable[[Admission], None]:
    """An admission rule, for `app.rule`. A user who requests an emergency and is not on call is refused. The rule does
    not lower the priority silently: the user should know at once that the request is not an emergency."""

    def emergencies(asked: Admission) -> None:
        if asked.priority < Priority.CRITICAL and asked.by not in on_call:
            names = ", ".join(sorted(on_call)) or "nobody at present"
            raise NotAllowed(f"{asked.by} is not on call: emergency is for {names}; ask with priority critical")

    return emergencies

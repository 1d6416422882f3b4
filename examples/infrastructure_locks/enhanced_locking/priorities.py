"""Whose turn comes first: one function of the pull request and its author, and one rule that guards emergencies."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from daybreak import Admission, NotAllowed, Priority

# In capitals and as a word of its own: a pull request about a security group is no emergency.
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
    """One lock for each repository, path and workspace: what has another name never waits for this one."""
    return f"{project.repository}/{project.path}/{workspace}"


def determine_priority(pull: PullRequest, user: str, on_call: Collection[str]) -> Priority:
    """What a pull request is entitled to.

    Everybody can write a title, so it makes an emergency only for someone on call. For others the branch decides: their
    work goes on, at the place in line that it would have had without the word."""
    if _URGENT.search(pull.title) and user in on_call:
        return Priority.EMERGENCY
    if pull.base_branch in ("main", "production"):
        return Priority.CRITICAL
    if pull.base_branch.startswith("release/"):
        return Priority.HIGH
    return Priority.NORMAL


def only_on_call(on_call: Collection[str]) -> Callable[[Admission], None]:
    """An admission rule, for `app.rule`. Who asks for an emergency by name, and is not on call, is refused and not
    lowered: he should know at once that he waits like others, and not find out while production is down."""

    def emergencies(asked: Admission) -> None:
        if asked.priority < Priority.CRITICAL and asked.by not in on_call:
            names = ", ".join(sorted(on_call)) or "nobody at present"
            raise NotAllowed(f"{asked.by} is not on call: emergency is for {names}; ask with priority critical")

    return emergencies

"""Admission rules: functions of the app that see a job before it is accepted, and can change how it is run.

A rule sees the changes of the rules before it. It returns what it changes, or None; it refuses a job by raising
NotAllowed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from daybreak.core.errors import BadInput, DaybreakError, Refused
from daybreak.core.units import priority
from daybreak.policy.admit import check_name

CHANGES: Final = ("priority", "queue", "resource", "owner", "tags", "meta")


class Admission(Struct, frozen=True, kw_only=True):
    """A job that is about to be submitted: its task, its arguments by name, who submits it, and its options so far.

    `said` are the names of the options that the caller set with `using(...)`: a rule may want to leave those unchanged.
    A lock is a job of the task "lock" with the argument `names`; only its priority can be changed."""

    task: str
    args: Mapping[str, Any]
    by: str
    queue: str
    priority: int
    owner: str | None = None
    tags: tuple[str, ...] = ()
    meta: Mapping[str, Any] = {}
    resource: object = None
    said: frozenset[str] = frozenset()


Rule = Callable[[Admission], Mapping[str, Any] | None]


def check_rule(rule: Any) -> None:
    """Refuse what cannot be a rule."""
    if not callable(rule):
        raise BadInput(
            f"{rule!r} is not a rule: write @app.rule above a def that takes an Admission and returns what it changes"
        )
    if inspect.iscoroutinefunction(rule):
        raise BadInput(f"rule {rule.__name__!r} is async, but a rule must not wait: write def instead of async def")


def apply_rules(rules: Iterable[Rule], admission: Admission) -> Admission:
    """The job after all rules have changed it."""
    for rule in rules:
        name = getattr(rule, "__name__", "rule")
        try:
            changes = rule(admission)
        except DaybreakError:
            raise
        except Exception as error:
            raise Refused(
                f"rule {name!r} raised an error for a job of task {admission.task!r}, so the job was not submitted: "
                f"{type(error).__name__}: {error}"
            ) from error
        if changes:
            admission = _changed(admission, name, changes)
    return admission


def _changed(admission: Admission, rule: str, changes: Mapping[str, Any]) -> Admission:
    if not isinstance(changes, Mapping):
        raise BadInput(f"rule {rule!r} returned {changes!r}: return a dict of what it changes, or None")
    for name in changes:
        if name not in CHANGES:
            raise BadInput(f"rule {rule!r} cannot set {name!r}: it can set {', '.join(CHANGES)}")
    checked = dict(changes)
    if "priority" in checked:
        checked["priority"] = priority(checked["priority"])
    if "queue" in checked:
        check_name("queue", checked["queue"])
    if "tags" in checked:
        checked["tags"] = _texts(rule, "tags", checked["tags"])
    if "meta" in checked:
        _check_meta(rule, checked["meta"])
    if "owner" in checked:
        check_name("owner", checked["owner"])
    return replace(admission, **checked)


def _texts(rule: str, what: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise BadInput(f"rule {rule!r} sets {what}={value!r}: write a list of strings")
    return tuple(value)


def _check_meta(rule: str, value: object) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise BadInput(f"rule {rule!r} sets meta={value!r}: write a dict with strings as keys")

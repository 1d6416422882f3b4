"""Admission rules: functions of the app that look at a job before it is accepted, and set how it is run.

A rule sees what the rules before it have set. It answers what it changes, or nothing; it refuses a job by raising
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
    """A job that asks to be let in: its task, its arguments by name, who submits it, and what holds of it so far.

    `said` are the options that the caller gave, with `using(...)`: a rule may leave those alone. A lock comes as a job
    of the task "lock", with its `names` as argument; only its priority can be set."""

    task: str
    args: Mapping[str, Any]
    by: str
    queue: str
    priority: int
    owner: str | None = None
    tags: tuple[str, ...] = ()
    meta: Mapping[str, str] = {}
    resource: object = None
    said: frozenset[str] = frozenset()


Rule = Callable[[Admission], Mapping[str, Any] | None]


def check_rule(rule: Any) -> None:
    if not callable(rule):
        raise BadInput(f"{rule!r} is no rule: write @app.rule above a def that takes a job and returns what it changes")
    if inspect.iscoroutinefunction(rule):
        raise BadInput(f"rule {rule.__name__!r} is async: a rule only looks at the job, and must not wait")


def judge(rules: Iterable[Rule], asked: Admission) -> Admission:
    """The job as all rules leave it."""
    for rule in rules:
        name = getattr(rule, "__name__", "rule")
        try:
            changes = rule(asked)
        except DaybreakError:
            raise
        except Exception as error:
            raise Refused(
                f"rule {name!r} could not judge a job of task {asked.task!r}: {type(error).__name__}: {error}"
            ) from error
        if changes:
            asked = _changed(asked, name, changes)
    return asked


def _changed(asked: Admission, rule: str, changes: Mapping[str, Any]) -> Admission:
    if not isinstance(changes, Mapping):
        raise BadInput(f"rule {rule!r} returned {changes!r}: it returns a dict of what it changes, or None")
    for name in changes:
        if name not in CHANGES:
            raise BadInput(f"rule {rule!r} sets {name!r}: it can set {', '.join(CHANGES)}")
    said = dict(changes)
    if "priority" in said:
        said["priority"] = priority(said["priority"])
    if "queue" in said:
        check_name("queue", said["queue"])
    if "tags" in said:
        said["tags"] = _texts(rule, "tags", said["tags"])
    if "meta" in said:
        _check_meta(rule, said["meta"])
    if "owner" in said:
        check_name("owner", said["owner"])
    return replace(asked, **said)


def _texts(rule: str, what: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise BadInput(f"rule {rule!r} sets {what}={value!r}: write a list of texts")
    return tuple(value)


def _check_meta(rule: str, value: object) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(one, str) for pair in value.items() for one in pair):
        raise BadInput(f"rule {rule!r} sets meta={value!r}: write a dict of texts")

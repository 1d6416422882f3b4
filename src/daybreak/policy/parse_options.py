"""Parse the options of a job: from what people write into the data that stores keep, or an error that says what is
wrong.

`SubmitOptions` is the one list of these options. `task.using(...)`, `Client.submit(...)`, the command line and the
server all take them by these names, and `build_spec` is the one place that reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypedDict

import msgspec

from daybreak.core.errors import BadInput
from daybreak.core.metadata import encode_meta
from daybreak.core.model import DEFAULT_OPTIONS, Adaptive, JobSpec, Options, Retry
from daybreak.core.units import Priority, duration, instant, priority
from daybreak.policy.retry import parse_retry

Span = timedelta | str  # "90s", "10m"


class SubmitOptions(TypedDict, total=False):
    """The options of a job. Where an option may be None, that is the same as leaving it out."""

    priority: Priority | int | str
    queue: str
    delay: Span | None
    run_at: datetime | None
    expires_in: Span | None
    key: str | Callable[..., str] | None
    unique: str | None
    unique_while: Literal["unfinished", "waiting"]
    on_conflict: Literal["return", "replace", "raise", "refuse"]
    tags: Sequence[str]
    meta: Mapping[str, Any] | None
    owner: str | None
    run: str | None
    retry: Retry | int | str | None
    timeout: Span | Adaptive | None
    hang: Span | None
    keep: Span | None
    id: str


SUBMIT_OPTIONS: Final = frozenset(SubmitOptions.__annotations__)
# None is an error for these: a caller whose variable is unexpectedly None must not get the default silently.
_NEVER_NONE: Final = frozenset({"priority", "queue", "unique_while", "on_conflict", "tags"})


def build_spec(
    task: str,
    args: bytes,
    options: SubmitOptions,
    *,
    new_id: str,
    by: str = "",
    version: int = 1,
    defaults: Options = DEFAULT_OPTIONS,
) -> JobSpec:
    """A job with these options. `new_id` is its id unless the options give one; `defaults` are the options of its task
    about how a job is run."""
    given = {name: value for name, value in options.items() if value is not None or name in _NEVER_NONE}
    fields: dict[str, object] = {
        name: given[name] for name in ("queue", "key", "unique", "owner", "run") if name in given
    }
    if "priority" in given:
        fields["priority"] = priority(given["priority"])
    if "delay" in given:
        fields["delay"] = duration(given["delay"], "delay")
    if "run_at" in given:
        fields["run_at"] = instant(given["run_at"], "run_at")
    if "tags" in given:
        fields["tags"] = _tags(given["tags"])
    if "meta" in given:
        fields["meta"] = _meta(given["meta"])
    if "on_conflict" in given:
        fields["on_conflict"] = _choice("on_conflict", given["on_conflict"], ("return", "replace", "raise", "refuse"))
    if "unique_while" in given:
        fields["unique_while"] = _choice("unique_while", given["unique_while"], ("unfinished", "waiting"))
    execution = {name: given.get(name) for name in ("retry", "timeout", "expires_in", "keep", "hang")}
    return JobSpec(
        id=given.get("id", new_id),  # type: ignore[arg-type]
        task=task,
        args=args,
        version=version,
        by=by,
        options=parse_options(defaults, **execution, run=options.get("run")),
        **fields,  # type: ignore[arg-type]
    )


def _tags(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(tag, str) for tag in value):
        raise BadInput(f"tags={value!r} is not a list of strings; write tags=['nightly']")
    return tuple(value)


def _meta(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise BadInput(f"meta={value!r} is not a dict; write meta={{'name': 'value'}}")
    return encode_meta(value)


def _choice(name: str, value: object, choices: tuple[str, ...]) -> object:
    if value not in choices:
        raise BadInput(f"{name}={value!r}: choose {', '.join(choices[:-1])} or {choices[-1]}")
    return value


def parse_options(
    defaults: Options = DEFAULT_OPTIONS,
    *,
    retry: object = None,
    timeout: object = None,
    expires_in: object = None,
    keep: object = None,
    hang: object = None,
    run: str | None = None,
    **others: object,
) -> Options:
    """The options of how a job is run: the `defaults`, changed by the arguments that are not None. `others` are options
    that are stored as they are given. The jobs of a run are kept until the run is deleted, because its results are one
    table."""
    changes: dict[str, object] = {}
    if retry is not None:
        changes["retry"] = parse_retry(retry)
    if timeout is not None:
        changes |= _limit(timeout)
    for name, value in (("expires_in", expires_in), ("hang", hang)):
        if value is not None:
            changes[name] = duration(value, name)
    if keep is not None:
        changes["keep_completed"] = changes["keep_failed"] = duration(keep, "keep")
    elif run is not None:
        changes["keep_completed"] = changes["keep_failed"] = None
    changes |= {name: value for name, value in others.items() if value is not None}
    options = msgspec.structs.replace(defaults, **changes)
    # All jobs of a task share one instance, so that stores encode it once.
    return defaults if options == defaults else options


def _limit(timeout: object) -> dict[str, object]:
    """The options that an execution limit sets: all four, so that it replaces the whole limit of the task."""
    if isinstance(timeout, Adaptive):
        return {
            "timeout": timeout.base,
            "adaptive": True,
            "escalate": timeout.escalate,
            "escalate_after": timeout.escalate_after,
        }
    return {
        "timeout": duration(timeout, "timeout"),
        "adaptive": DEFAULT_OPTIONS.adaptive,
        "escalate": DEFAULT_OPTIONS.escalate,
        "escalate_after": DEFAULT_OPTIONS.escalate_after,
    }

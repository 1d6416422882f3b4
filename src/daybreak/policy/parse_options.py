"""What people write of a job and its options, read into data; or an error that names what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from daybreak.core.errors import BadInput
from daybreak.core.model import DEFAULT_OPTIONS, Adaptive, JobSpec, Options
from daybreak.core.units import duration, instant
from daybreak.core.units import priority as as_priority
from daybreak.policy.retry import parse_retry


def build_spec(
    task: str,
    args: bytes,
    *,
    id: str,  # noqa: A002 - the word users know
    by: str = "",
    options: Options = DEFAULT_OPTIONS,
    queue: str = "default",
    version: int = 1,
    priority: object = "normal",
    delay: object = None,
    run_at: datetime | None = None,
    key: str | None = None,
    unique: str | None = None,
    on_conflict: Literal["return", "replace", "raise", "refuse"] = "return",
    unique_while: Literal["unfinished", "waiting"] = "unfinished",
    tags: Sequence[str] = (),
    meta: Mapping[str, str] | None = None,
    run: str | None = None,
    owner: str | None = None,
) -> JobSpec:
    if tags and (isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags)):
        raise BadInput(f"tags: {tags!r} is no list of texts")
    if meta is not None and not isinstance(meta, Mapping):
        raise BadInput(f"meta: {meta!r} is no dict of texts")
    if on_conflict not in ("return", "replace", "raise", "refuse"):
        raise BadInput(f"on_conflict={on_conflict!r}: choose return, replace, raise or refuse")
    if unique_while not in ("unfinished", "waiting"):
        raise BadInput(f"unique_while={unique_while!r}: choose unfinished or waiting")
    return JobSpec(
        id=id,
        task=task,
        args=args,
        queue=queue,
        version=version,
        priority=as_priority(priority),
        options=options,
        by=by,
        delay=None if delay is None else duration(delay, "delay"),
        run_at=None if run_at is None else instant(run_at, "run_at"),
        key=key,
        unique=unique,
        on_conflict=on_conflict,
        unique_while=unique_while,
        run=run,
        owner=owner,
        tags=tuple(tags),
        meta=dict(meta) if meta else {},
    )


def parse_options(
    start: Options = DEFAULT_OPTIONS,
    *,
    retry: object = None,
    timeout: object = None,
    expires_in: object = None,
    keep: object = None,
    hang: object = None,
    run: str | None = None,
    **numbers: object,
) -> Options:
    """`start` with what was said on top of it; `numbers` are other options, as they are. The jobs of a run are kept
    until the run is deleted: its results are one table."""
    said: dict[str, object] = {}
    if retry is not None:
        said["retry"] = parse_retry(retry)
    if timeout is not None:
        said |= _limit(timeout)
    for name, value in (("expires_in", expires_in), ("hang", hang)):
        if value is not None:
            said[name] = duration(value, name)
    if keep is not None:
        said["keep_completed"] = said["keep_failed"] = duration(keep, "keep")
    elif run is not None:
        said["keep_completed"] = said["keep_failed"] = None
    said |= {name: number for name, number in numbers.items() if number is not None}
    changed = msgspec.structs.replace(start, **said)
    return start if changed == start else changed  # one value for all, so that stores encode it once


def _limit(timeout: object) -> dict[str, object]:
    """The options that an execution limit sets: all of them, so that it replaces the task's own limit as a whole."""
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

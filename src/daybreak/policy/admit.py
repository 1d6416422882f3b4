"""Admission: every job is checked here before a store sees it."""

from __future__ import annotations

import hashlib
import unicodedata
from datetime import timedelta
from typing import Final

from daybreak.core.errors import BadInput, TooLarge, Unsupported
from daybreak.core.flights import FLIGHT_CAUSE_PREFIX, is_flight_cause
from daybreak.core.model import DEFAULT_OPTIONS, JobSpec, Need, Options
from daybreak.core.resource_gauge import RETRY_CAUSE_PREFIX, spared_resource
from daybreak.core.units import duration, instant
from daybreak.policy.retry import parse_retry

ARGS_LIMIT: Final = 1024 * 1024
NAME_LIMIT: Final = 200
TAGS_LIMIT: Final = 50
NEEDS_LIMIT: Final = 32
MAX_SLOTS: Final = 1_000_000_000
SHORTEST_HANG: Final = timedelta(seconds=1)


def admit(spec: JobSpec, features: frozenset[str]) -> JobSpec:
    """The spec, if it is valid and a store with these features can keep all of it; otherwise an error that says why."""
    check_name("task", spec.task)
    check_name("queue", spec.queue)
    check_name("by", spec.by)
    check_name("id", spec.id)
    for what in ("key", "unique", "run", "owner", "flight", "batch"):
        check_name(what, getattr(spec, what))
    for tag in spec.tags:
        check_name("tag", tag)
    for name, value in spec.meta.items():
        check_name("meta", name)
        if not isinstance(value, str):
            raise BadInput(f"meta {name!r}: {value!r} is not text; convert it with str()")
        if any(unicodedata.category(c) == "Cs" for c in value):
            raise BadInput(f"meta {name!r}: the text contains an unpaired surrogate, which cannot be encoded")
    if len(spec.tags) > TAGS_LIMIT or len(spec.meta) > TAGS_LIMIT:
        raise TooLarge(
            f"job {spec.task!r} has {len(spec.tags)} tags and {len(spec.meta)} meta entries; "
            f"the limit is {TAGS_LIMIT} each"
        )
    for what in ("task", "queue", "id"):
        if not getattr(spec, what):
            raise BadInput(f"job {spec.task!r}: its {what} is empty; a job needs a task, a queue and an id")
    check_size(spec.task, spec.args)
    if not _is_whole(spec.priority) or not 0 <= spec.priority <= 10:
        raise BadInput(f"job {spec.task!r}: priority {spec.priority!r} is not an integer from 0 to 10")
    check_version(f"job {spec.task!r}", spec.version)
    if spec.delay is not None and spec.run_at is not None:
        raise BadInput(f"job {spec.task!r}: give delay or run_at, not both")
    if spec.delay is not None:
        duration(spec.delay, f"job {spec.task!r}: delay")
    if spec.run_at is not None:
        instant(spec.run_at, f"job {spec.task!r}: run_at")
    if spec.options is not DEFAULT_OPTIONS:
        check_options(f"job {spec.task!r}", spec.options)
    if spec.holder is not None:
        _check_holder(spec)
    _check_features(spec, features)
    return spec


def check_size(task: str, args: bytes) -> bytes:
    """The encoded arguments, unless they are too large."""
    if len(args) > ARGS_LIMIT:
        raise TooLarge(
            f"job {task!r}: its arguments have {len(args):,} bytes, the limit is {ARGS_LIMIT:,}; "
            "pass the name of a file instead of the data"
        )
    return args


def check_version(who: str, version: int) -> None:
    """Refuse a version that no store can keep."""
    if not _is_whole(version) or not 0 <= version < 2**31:
        raise BadInput(f"{who}: version {version!r} must be an integer from 0 to 2,147,483,647")


def check_options(who: str, options: Options) -> None:
    """Refuse options that are out of range. `who` names the job or the task in errors."""
    parse_retry(options.retry)
    for kind in (*options.retry.transient, *options.retry.permanent):
        check_name("retry", kind)
    for what in ("timeout", "expires_in", "keep_completed", "keep_failed", "hang"):
        value = getattr(options, what)
        if value is not None:
            duration(value, f"{who}: {what}")
    _check_needs(who, options.resources)
    if not _is_whole(options.escalate_after) or not 1 <= options.escalate_after <= 1000:
        raise BadInput(f"{who}: escalate_after={options.escalate_after!r} must be an integer from 1 to 1000")
    if options.hang is not None and options.hang < SHORTEST_HANG:
        raise BadInput(f"{who}: hang={options.hang.total_seconds():g} s is too short to detect: write 1s or more")
    if not _is_number(options.escalate) or not 1 <= options.escalate <= 100:
        raise BadInput(f"{who}: escalate={options.escalate!r} must be a number from 1 to 100")
    if not _is_whole(options.deaths) or options.deaths < 1:
        raise BadInput(f"{who}: deaths={options.deaths!r} must be an integer of 1 or more")
    for what in ("timeout", "expires_in"):
        value = getattr(options, what)
        if value is not None and value <= timedelta():
            raise BadInput(f"{who}: {what} must be longer than 0; leave it out for no limit")
    for what in ("adaptive", "fail_fast"):
        value = getattr(options, what)
        if not isinstance(value, bool):
            raise BadInput(f"{who}: {what}={value!r} must be True or False")


def _check_needs(who: str, needs: tuple[Need, ...]) -> None:
    for need in needs:
        if not need.resource:
            raise BadInput(f"{who}: one of its resources has an empty name; name it")
        check_name("resource", need.resource)
        if spared_resource(need.resource) is not None:
            raise BadInput(
                f"{who}: a resource cannot be named {need.resource!r}: names that begin with {RETRY_CAUSE_PREFIX!r} "
                "are reserved"
            )
        if is_flight_cause(need.resource):
            raise BadInput(
                f"{who}: a resource cannot be named {need.resource!r}: names that begin with {FLIGHT_CAUSE_PREFIX!r} "
                "are reserved"
            )
        if not _is_whole(need.slots) or not 1 <= need.slots <= MAX_SLOTS:
            raise BadInput(f"{who} needs {need.slots!r} slots of {need.resource!r}; write an integer of 1 or more")
    if len(needs) > NEEDS_LIMIT:
        raise TooLarge(f"{who} needs {len(needs)} resources; the limit is {NEEDS_LIMIT}")
    if [need.resource for need in needs] != sorted({need.resource for need in needs}):
        raise BadInput(f"{who}: its resources must be sorted by name, and each must occur once")


def _check_holder(spec: JobSpec) -> None:
    check_name("holder", spec.holder)
    if not spec.holder or not spec.options.resources:
        raise BadInput(f"job {spec.task!r}: a job with a holder needs the holder's name and at least one resource")
    if spec.delay is not None or spec.run_at is not None:
        raise BadInput(f"job {spec.task!r}: a job with a holder cannot have a delay or a run_at")
    duration(spec.hold_for, f"job {spec.task!r}: hold_for")


def _check_features(spec: JobSpec, features: frozenset[str]) -> None:
    if not (spec.after or spec.batch is not None or spec.flight or spec.deadline or spec.options.resources):
        return
    needed = {
        "resources": spec.options.resources,
        "dependencies": spec.after,
        "batches": spec.batch is not None,
        "cache": spec.flight,
        "deadlines": spec.deadline,
    }
    for feature, value in needed.items():
        if value and feature not in features:
            advice = ": submit with using(cache=False), or use SQLite" if feature == "cache" else ""
            raise Unsupported(f"job {spec.task!r} needs {feature}, which this store does not support{advice}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# Millions of jobs share a few names, so names that were found valid are not checked again.
_valid_names: set[str] = set()


def check_name(what: str, value: str | None) -> None:
    """Refuse a name that is too long or contains control characters. `what` says in errors what it names."""
    if value is None or value in _valid_names:
        return
    if not isinstance(value, str):
        raise BadInput(f"{what}: {value!r} is not text; a name is a str")
    if len(value) > NAME_LIMIT:
        raise TooLarge(f"{what}: the name has {len(value)} characters, the limit is {NAME_LIMIT}")
    if not value.isprintable():
        for char in value:
            if unicodedata.category(char) in ("Cc", "Cs"):
                raise BadInput(f"{what}: {value!r} contains the control character {char!r}; a name is printable text")
    if len(_valid_names) < 10_000 and what in ("task", "queue", "by"):
        _valid_names.add(value)


def digest(spec: JobSpec) -> str:
    """The digest of what "same content" means under an idempotency key: task, version, queue and arguments."""
    content = b"\0".join((spec.task.encode(), str(spec.version).encode(), spec.queue.encode(), spec.args))
    return hashlib.blake2b(content, digest_size=16).hexdigest()

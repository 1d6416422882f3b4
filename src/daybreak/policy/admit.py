"""What is let in: every job is judged here before a store sees it."""

from __future__ import annotations

import hashlib
import unicodedata
from datetime import timedelta
from typing import Final

from daybreak.core.errors import BadInput, TooLarge, Unsupported
from daybreak.core.model import DEFAULT_OPTIONS, JobSpec, Need, Options
from daybreak.core.resource_gauge import spared_resource
from daybreak.core.units import duration, instant
from daybreak.policy.retry import parse_retry

ARGS_LIMIT: Final = 1024 * 1024
NAME_LIMIT: Final = 200
TAGS_LIMIT: Final = 50
NEEDS_LIMIT: Final = 32
MAX_SLOTS: Final = 1_000_000_000
SHORTEST_HANG: Final = timedelta(seconds=1)


def admit(spec: JobSpec, features: frozenset[str]) -> JobSpec:
    """The spec, if a store with these features can keep every word of it; otherwise an error that names the trouble."""
    check_name("task", spec.task)
    check_name("queue", spec.queue)
    check_name("by", spec.by)
    check_name("id", spec.id)
    for what in ("key", "unique", "run", "owner"):
        check_name(what, getattr(spec, what))
    for tag in spec.tags:
        check_name("tag", tag)
    for name, value in spec.meta.items():
        check_name("meta", name)
        if not isinstance(value, str):
            raise BadInput(f"meta {name!r}: {value!r} is no text")
        if any(unicodedata.category(c) == "Cs" for c in value):
            raise BadInput(f"meta {name!r}: the text holds half a surrogate pair, which no encoding can carry")
    if len(spec.tags) > TAGS_LIMIT or len(spec.meta) > TAGS_LIMIT:
        raise TooLarge(f"job {spec.task!r}: at most {TAGS_LIMIT} tags and {TAGS_LIMIT} meta entries")
    if not spec.task or not spec.queue or not spec.id:
        raise BadInput("a job needs a task, a queue and an id: one of them is empty")
    check_size(spec.task, spec.args)
    if not _is_whole(spec.priority) or not 0 <= spec.priority <= 10:
        raise BadInput(f"job {spec.task!r}: priority {spec.priority!r} is no integer from 0 to 10")
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
    if len(args) > ARGS_LIMIT:
        raise TooLarge(
            f"job {task!r}: its arguments take {len(args):,} bytes, the limit is {ARGS_LIMIT:,}; "
            "pass a file or a reference instead of the data"
        )
    return args


def check_version(who: str, version: int) -> None:
    if not _is_whole(version) or not 0 <= version < 2**31:
        raise BadInput(f"{who}: version {version!r} must be an integer from 0 to 2,147,483,647")


def check_options(who: str, options: Options) -> None:
    """`who` is the job or the task that has them, as a message names it."""
    parse_retry(options.retry)
    for kind in (*options.retry.transient, *options.retry.permanent):
        check_name("retry", kind)
    for what in ("timeout", "expires_in", "keep_completed", "keep_failed", "hang"):
        if (value := getattr(options, what)) is not None:
            duration(value, f"{who}: {what}")
    _check_needs(who, options.resources)
    if not _is_whole(options.escalate_after) or not 1 <= options.escalate_after <= 1000:
        raise BadInput(f"{who}: escalate_after={options.escalate_after!r} must be an integer from 1 to 1000")
    if options.hang is not None and options.hang < SHORTEST_HANG:
        raise BadInput(f"{who}: hang={options.hang.total_seconds():g} s is too short to tell: write 1s or more")
    if not _is_number(options.escalate) or not 1 <= options.escalate <= 100:
        raise BadInput(f"{who}: escalate={options.escalate!r} must be a number from 1 to 100")
    if not _is_whole(options.deaths) or options.deaths < 1:
        raise BadInput(f"{who}: deaths={options.deaths!r} must be an integer from 1")
    for what in ("timeout", "expires_in"):
        if (value := getattr(options, what)) is not None and value <= timedelta():
            raise BadInput(f"{who}: {what} must be longer than nothing; leave it out for no limit")
    for what in ("adaptive", "fail_fast"):
        if not isinstance(value := getattr(options, what), bool):
            raise BadInput(f"{who}: {what}={value!r} must be True or False")


def _check_needs(who: str, needs: tuple[Need, ...]) -> None:
    for need in needs:
        if not need.resource:
            raise BadInput(f"{who}: a resource without a name")
        check_name("resource", need.resource)
        if spared_resource(need.resource) is not None:
            raise BadInput(f"{who}: {need.resource!r} is no resource, but what waits while one fails")
        if not _is_whole(need.slots) or not 1 <= need.slots <= MAX_SLOTS:
            raise BadInput(f"{who}: {need.slots!r} slots of {need.resource!r}; write 1 or more")
    if len(needs) > NEEDS_LIMIT:
        raise TooLarge(f"{who}: {len(needs)} resources; at most {NEEDS_LIMIT}")
    if [need.resource for need in needs] != sorted({need.resource for need in needs}):
        raise BadInput(f"{who}: its resources must stand in the order of their names, each once")


def _check_holder(spec: JobSpec) -> None:
    check_name("holder", spec.holder)
    if not spec.holder or not spec.options.resources:
        raise BadInput(f"job {spec.task!r}: a holder needs a name, and something to hold: resources")
    if spec.delay is not None or spec.run_at is not None:
        raise BadInput(f"job {spec.task!r}: what is run by its own holder cannot be put off")
    duration(spec.hold_for, f"job {spec.task!r}: hold_for")


def _check_features(spec: JobSpec, features: frozenset[str]) -> None:
    if not (spec.after or spec.batch or spec.flight or spec.deadline or spec.options.resources):
        return
    asked = {
        "resources": spec.options.resources,
        "dependencies": spec.after,
        "batches": spec.batch,
        "cache": spec.flight,
        "deadlines": spec.deadline,
    }
    for feature, value in asked.items():
        if value and feature not in features:
            raise Unsupported(f"job {spec.task!r} asks for {feature}, which this store does not offer")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# Names come back by the million and are few: what was found good need not be looked at again.
_good: set[str] = set()


def check_name(what: str, value: str | None) -> None:
    """Names are printable text of bounded length, wherever they come from."""
    if value is None or value in _good:
        return
    if not isinstance(value, str):
        raise BadInput(f"{what}: {value!r} is no text")
    if len(value) > NAME_LIMIT:
        raise TooLarge(f"{what}: {len(value)} characters, the limit is {NAME_LIMIT}")
    if not value.isprintable() and (bad := next((c for c in value if unicodedata.category(c) in ("Cc", "Cs")), None)):
        raise BadInput(f"{what}: {value!r} holds the control character {bad!r}; names are printable text")
    if len(_good) < 10_000 and what in ("task", "queue", "by"):
        _good.add(value)


def digest(spec: JobSpec) -> str:
    """What "same content" means under an idempotency key: the task, its version, its queue and its arguments."""
    content = b"\0".join((spec.task.encode(), str(spec.version).encode(), spec.queue.encode(), spec.args))
    return hashlib.blake2b(content, digest_size=16).hexdigest()

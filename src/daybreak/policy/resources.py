"""Parse what people write about resources: into data, or into an error that says what is wrong."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

import msgspec

from daybreak.core.errors import BadInput
from daybreak.core.model import UNLIMITED, Breaker, Need, ResourceSettings
from daybreak.core.resource_gauge import RETRY_CAUSE_PREFIX, spared_resource
from daybreak.core.units import MAX_DURATION, ZERO, duration
from daybreak.policy.admit import MAX_SLOTS, NEEDS_LIMIT, check_name

LOCK_PREFIX: Final = "lock:"  # the resource of a lock is named by this and the lock's name

_RATE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*(\d+)?\s*(ms|s|m|min|h|d|sec|second|minute|hour|day)\s*")
_UNITS: Final = {
    "ms": timedelta(milliseconds=1), "s": timedelta(seconds=1), "sec": timedelta(seconds=1),
    "second": timedelta(seconds=1), "m": timedelta(minutes=1), "min": timedelta(minutes=1),
    "minute": timedelta(minutes=1), "h": timedelta(hours=1), "hour": timedelta(hours=1), "d": timedelta(days=1),
    "day": timedelta(days=1),
}  # fmt: skip


class Resource:
    """Something that jobs share. The limits given here are defaults: a person can change them later, until they are
    reset.

    slots        how many slots there are; a job holds one while it runs
    rate         how many jobs may start: "10/s", "100/min"; `burst` of them at once after a pause
    breaker      True, or Breaker(...): no job starts for a while after consecutive failures
    max_waiting  refuse new jobs while so many wait for the resource
    """

    def __init__(
        self,
        name: str,
        *,
        slots: int | None = None,
        rate: str | None = None,
        burst: int | None = None,
        breaker: Breaker | bool | None = None,
        max_waiting: int | None = None,
    ) -> None:
        self.name = check_resource(name)
        self.settings = parse_settings(
            name, UNLIMITED, slots=slots, rate=rate, burst=burst, breaker=breaker, max_waiting=max_waiting
        )

    def take(self, slots: int) -> Share:
        """Several slots of this resource, for one job."""
        return Share(self, slots)

    def __repr__(self) -> str:
        return f"<resource {self.name}>"


class Share:
    """Several slots of one resource."""

    def __init__(self, resource: Resource | str, slots: int) -> None:
        self.resource = resource
        name = resource.name if isinstance(resource, Resource) else check_resource(resource)
        if isinstance(slots, bool) or not isinstance(slots, int) or not 1 <= slots <= MAX_SLOTS:
            raise BadInput(f"resource {name!r}: take({slots!r}); the number of slots is an integer of 1 or more")
        self.need = Need(name, slots)

    def __repr__(self) -> str:
        return f"<{self.need.slots} of resource {self.need.resource}>"


def parse_shares(value: object) -> list[Share]:
    """The value of `resource=`: a resource or its name, several slots of one, or a list of these."""
    match value:
        case None:
            return []
        case Share():
            return [value]
        case Resource() | str():
            return [Share(value, 1)]
        case list() | tuple() | set() | frozenset():
            return [share for one in value for share in parse_shares(one)]
        case _:
            raise BadInput(
                f"resource={value!r}: write a Resource, its name, resource.take(2), a list of these, "
                "or a function of the task's arguments that returns one"
            )


def needs_of(shares: Iterable[Share]) -> tuple[Need, ...]:
    """The needs of a job, sorted by resource name."""
    needs = sorted((share.need for share in shares), key=lambda need: need.resource)
    for one, other in itertools.pairwise(needs):
        if one.resource == other.resource:
            raise BadInput(f"resource {one.resource!r} is named twice: for several slots write resource.take(2)")
    if len(needs) > NEEDS_LIMIT:
        raise BadInput(f"a job that needs {len(needs)} resources: the limit is {NEEDS_LIMIT}")
    return tuple(needs)


def check_resource(name: object) -> str:
    """The name of a resource, if it is valid."""
    if not isinstance(name, str) or not name:
        raise BadInput(f"resource: {name!r} is not a name; write a string such as 'plecs'")
    check_name("resource", name)
    if spared_resource(name) is not None:
        raise BadInput(f"resource {name!r}: names that begin with {RETRY_CAUSE_PREFIX!r} are reserved; choose another")
    return name


def parse_settings(name: str, before: ResourceSettings, **given: Any) -> ResourceSettings:
    """The settings `before`, changed by the given values. None leaves a value unchanged; `"none"` removes a limit."""
    changes: dict[str, Any] = {}
    for what, value in given.items():
        if value is None:
            continue
        match what:
            case "slots" | "max_waiting":
                changes[what] = _whole(name, what, value, least=0)
            case "burst":
                changes[what] = _whole(name, what, value, least=1)
            case "rate":
                changes["every"] = parse_rate(value, f"resource {name!r}")
            case "breaker":
                changes[what] = _breaker(name, value)
            case _:
                known = "slots, rate, burst, breaker, max_waiting"
                raise BadInput(f"resource {name!r} has no setting {what!r}; the settings are {known}")
    if changes.get("every", "") is None:
        changes.setdefault("burst", 1)
    after = msgspec.structs.replace(before, **changes)
    if after.burst != 1 and after.every is None:
        raise BadInput(f"resource {name!r}: burst={after.burst} without a rate; give a rate too: rate='10/s'")
    return after


def _whole(name: str, what: str, value: object, *, least: int) -> int | None:
    if value == "none" and what != "burst":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_SLOTS:
        raise BadInput(f"resource {name!r}: {what}={value!r} must be an integer of {least} or more")
    return value


def parse_rate(rate: object, who: str) -> timedelta | None:
    """The time between two starts at this rate: "10/s" is 100 ms. `who` begins the error."""
    if rate == "none":
        return None
    found = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if found is None:
        raise BadInput(f"{who}: rate={rate!r}; write a number per time, such as '10/s' or '100/min'")
    number, times, unit = float(found[1]), int(found[2] or 1), _UNITS[found[3]]
    every = unit * times / number if number and times else ZERO
    if not timedelta(microseconds=1) <= every <= MAX_DURATION:
        raise BadInput(f"{who}: rate={rate!r} is out of range; it is from one in 100 years to one per microsecond")
    return every


def rate_text(every: timedelta | None) -> str:
    """The rate as text, such as "10/s": in the shortest unit in which it is a whole number, if there is one."""
    if every is None:
        return "none"
    numbers = {unit: _UNITS[unit] / every for unit in ("s", "min", "h", "d")}
    for unit, number in numbers.items():
        # An interval is stored in whole microseconds, so "3/s" is not exactly 3.
        if number >= 1 and abs(number - round(number)) < number * 1e-5:
            return f"{round(number)}/{unit}"
    unit = next((unit for unit, number in numbers.items() if number >= 1), "d")
    return f"{numbers[unit]:.3g}/{unit}"


def _breaker(name: str, value: object) -> Breaker | None:
    if value is False or value == "none":
        return None
    if value is True:
        return Breaker()
    if not isinstance(value, Breaker):
        raise BadInput(f"resource {name!r}: breaker={value!r}; write True or Breaker(failures=5, open_for='60s')")
    try:  # the constructor of a Struct does not check types
        open_for = duration(value.open_for, f"resource {name!r}: open_for")
        forget_after = value.forget_after
        if forget_after is not None:
            forget_after = duration(forget_after, f"resource {name!r}: forget_after")
        written = msgspec.structs.replace(value, open_for=open_for, forget_after=forget_after)
        made = msgspec.convert(msgspec.structs.asdict(written), Breaker)
    except msgspec.ValidationError as error:
        raise BadInput(f"resource {name!r}: breaker: {error}") from None
    if min(made.failures, made.successes, made.probes) < 1 or made.open_for <= ZERO or made.forget_after == ZERO:
        raise BadInput(
            f"resource {name!r}: failures, successes, probes, open_for and forget_after of a breaker must be above 0"
        )
    return made

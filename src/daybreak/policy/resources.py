"""What people write of resources, read into data; or an error that names what is wrong with it."""

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

LOCK_PREFIX: Final = "lock:"  # what the resources of locks are called by

_RATE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*(\d+)?\s*(ms|s|m|min|h|d|sec|second|minute|hour|day)\s*")
_UNITS: Final = {
    "ms": timedelta(milliseconds=1), "s": timedelta(seconds=1), "sec": timedelta(seconds=1),
    "second": timedelta(seconds=1), "m": timedelta(minutes=1), "min": timedelta(minutes=1),
    "minute": timedelta(minutes=1), "h": timedelta(hours=1), "hour": timedelta(hours=1), "d": timedelta(days=1),
    "day": timedelta(days=1),
}  # fmt: skip


class Resource:
    """Something that jobs share. What is said here is the default: what a person sets later wins until it is reset.

    slots        so many jobs hold it at once
    rate         so many may start: "10/s", "100/min"; `burst` of them at once after a rest
    breaker      True, or Breaker(...): leave it alone for a while after failures in a row
    max_waiting  refuse jobs while so many wait for it
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
        """So many slots of it for one job."""
        return Share(self, slots)

    def __repr__(self) -> str:
        return f"<resource {self.name}>"


class Share:
    """Several slots of one resource."""

    def __init__(self, resource: Resource | str, slots: int) -> None:
        self.resource = resource
        name = resource.name if isinstance(resource, Resource) else check_resource(resource)
        if isinstance(slots, bool) or not isinstance(slots, int) or not 1 <= slots <= MAX_SLOTS:
            raise BadInput(f"resource {name!r}: {slots!r} slots; write a whole number from 1")
        self.need = Need(name, slots)

    def __repr__(self) -> str:
        return f"<{self.need.slots} of resource {self.need.resource}>"


def parse_shares(value: object) -> list[Share]:
    """What people write for resource=: a resource or its name, several slots of one, or a list of these."""
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
    needs = sorted((share.need for share in shares), key=lambda need: need.resource)
    for one, other in itertools.pairwise(needs):
        if one.resource == other.resource:
            raise BadInput(f"resource {one.resource!r} is named twice: for several slots write resource.take(2)")
    if len(needs) > NEEDS_LIMIT:
        raise BadInput(f"{len(needs)} resources for one job: at most {NEEDS_LIMIT}")
    return tuple(needs)


def check_resource(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise BadInput(f"resource: {name!r} is no name; write a text such as 'plecs'")
    check_name("resource", name)
    if spared_resource(name) is not None:
        raise BadInput(
            f"resource {name!r}: names that begin with {RETRY_CAUSE_PREFIX!r} are for what waits while one fails"
        )
    return name


def parse_settings(name: str, before: ResourceSettings, **said: Any) -> ResourceSettings:
    """`before` with what was said on top of it. None leaves a number as it is; `"none"` takes a limit away."""
    changes: dict[str, Any] = {}
    for what, value in said.items():
        if value is None:
            continue
        match what:
            case "slots" | "max_waiting":
                changes[what] = _whole(name, what, value, least=0)
            case "burst":
                changes[what] = _whole(name, what, value, least=1)
            case "rate":
                changes["every"] = parse_rate(value, name)
            case "breaker":
                changes[what] = _breaker(name, value)
            case _:
                known = "slots, rate, burst, breaker, max_waiting"
                raise BadInput(f"resource {name!r} has no setting {what!r}: there are {known}")
    if changes.get("every", "") is None:
        changes.setdefault("burst", 1)
    after = msgspec.structs.replace(before, **changes)
    if after.burst != 1 and after.every is None:
        raise BadInput(f"resource {name!r}: burst={after.burst} without a rate; say how fast: rate='10/s'")
    return after


def _whole(name: str, what: str, value: object, *, least: int) -> int | None:
    if value == "none" and what != "burst":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_SLOTS:
        raise BadInput(f"resource {name!r}: {what}={value!r} must be a whole number from {least}")
    return value


def parse_rate(rate: object, name: str) -> timedelta | None:
    """The time between two starts: "10/s" is 100 ms."""
    if rate == "none":
        return None
    found = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if found is None:
        raise BadInput(f"resource {name!r}: rate={rate!r}; write a number and a time, such as '10/s' or '100/min'")
    number, times, unit = float(found[1]), int(found[2] or 1), _UNITS[found[3]]
    every = unit * times / number if number and times else ZERO
    if not timedelta(microseconds=1) <= every <= MAX_DURATION:
        raise BadInput(f"resource {name!r}: rate={rate!r} lies outside one a microsecond to one in 100 years")
    return every


def rate_text(every: timedelta | None) -> str:
    """As one would write it: in the shortest unit in which it is a whole number, if there is one."""
    if every is None:
        return "none"
    numbers = {unit: _UNITS[unit] / every for unit in ("s", "min", "h", "d")}
    # An interval is kept in whole microseconds: three a second are not quite three.
    whole = (unit for unit, number in numbers.items() if number >= 1 and abs(number - round(number)) < number * 1e-5)
    if (unit := next(whole, None)) is not None:
        return f"{round(numbers[unit])}/{unit}"
    unit = next((unit for unit, number in numbers.items() if number >= 1), "d")
    return f"{numbers[unit]:.3g}/{unit}"


def _breaker(name: str, value: object) -> Breaker | None:
    if value is False or value == "none":
        return None
    if value is True:
        return Breaker()
    if not isinstance(value, Breaker):
        raise BadInput(f"resource {name!r}: breaker={value!r}; write True or Breaker(failures=5, open_for='60s')")
    try:  # a Struct does not check what it is made of
        open_for = duration(value.open_for, f"resource {name!r}: open_for")
        made = msgspec.convert(msgspec.structs.asdict(msgspec.structs.replace(value, open_for=open_for)), Breaker)
    except msgspec.ValidationError as error:
        raise BadInput(f"resource {name!r}: breaker: {error}") from None
    if min(made.failures, made.successes, made.probes) < 1 or made.open_for <= ZERO:
        raise BadInput(f"resource {name!r}: a breaker's failures, successes, probes and open_for must be above 0")
    return made

"""Types of options and arguments, and the filters. Parsing is strict, and errors show the right spelling."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec.structs import replace as with_changes

from daybreak.cli import completions
from daybreak.cli.errors import EMPTY
from daybreak.config import closest
from daybreak.core import units
from daybreak.core.errors import BadInput
from daybreak.core.model import Adaptive, Reason, State
from daybreak.core.text import any_of, priority_name, safe
from daybreak.policy.job_filter import STORE_FIELDS, JobFilter

F = TypeVar("F", bound=Callable[..., Any])

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # older releases of click have no generic one


class Duration(ParamType):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, str) and re.fullmatch(r"\s*\d+(\.\d+)?\s*", value):
            self.fail(
                f"{value.strip()} has no unit; write {value.strip()}s, {value.strip()}m or {value.strip()}h", param, ctx
            )
        try:
            return units.duration(value)
        except BadInput as error:
            self.fail(str(error).replace(" or a timedelta", "").removeprefix("duration: "), param, ctx)


class Timeout(Duration):
    """How long an attempt may run: a duration, or `adaptive:` and a duration."""

    name = "timeout"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        kind, colon, base = value.partition(":") if isinstance(value, str) else ("", "", "")
        if colon and kind.strip().lower() == "adaptive":
            return Adaptive(super().convert(base, param, ctx))
        return super().convert(value, param, ctx)


class Instant(ParamType):
    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a date and time; write for example 2026-01-31T18:00+01:00", param, ctx)
        if found.tzinfo is None:
            self.fail(f"{value} has no time zone; write {_with_zone(found)} if you mean local time", param, ctx)
        try:
            return units.instant(found)
        except BadInput as error:
            self.fail(str(error).removeprefix("instant: "), param, ctx)


def _with_zone(naive: datetime) -> str:
    try:
        return naive.astimezone().isoformat(timespec="minutes" if not naive.second else "seconds")
    except (OverflowError, OSError, ValueError):
        return naive.isoformat() + "+00:00"


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in the past. `text` is how the user wrote it; hints repeat it in that form."""

    text: str
    at: datetime

    @property
    def is_instant(self) -> bool:
        return bool(_DATE.match(self.text))


class Past(ParamType):
    """A time in the past: a duration before now (`1d`), a time of day (`18:00`, the latest one), or an instant."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Moment:
        if isinstance(value, Moment):
            return value
        if _DATE.match(value):
            return Moment(value, INSTANT.convert(value, param, ctx))
        if (clock := _CLOCK.fullmatch(value)) is not None:
            return Moment(value.strip(), self._latest(int(clock["hour"]), int(clock["minute"]), value, param, ctx))
        try:
            return Moment(value.strip(), datetime.now(UTC) - DURATION.convert(value, param, ctx))
        except OverflowError:
            self.fail(f"{value!r} is too long: the time would be before the year 1", param, ctx)

    def _latest(
        self, hour: int, minute: int, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """The latest time of day in the past, by the local clock."""
        if hour > 23 or minute > 59:
            self.fail(f"{value!r} is not a time of day; write for example 18:00", param, ctx)
        now = datetime.now().astimezone()
        day = now.replace(hour=hour, minute=minute, second=0, microsecond=0, tzinfo=None)
        if day.astimezone() > now:
            day -= timedelta(days=1)
        return day.astimezone(UTC)


_DATE = re.compile(r"\s*\d{4}-")
_CLOCK = re.compile(r"\s*(?P<hour>\d{1,2}):(?P<minute>\d\d)\s*")


class Name(ParamType):
    """A text that is not empty."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        _refuse_empty(value, param, ctx)
        return str(value)


class Place(click.Path):
    """The path of a file or folder; an empty path is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        _refuse_empty(value, param, ctx)
        return super().convert(value, param, ctx)


def _refuse_empty(value: Any, param: click.Parameter | None, ctx: click.Context | None) -> None:
    if value == "" and not (ctx and ctx.resilient_parsing):
        left_out = "" if param is None or param.required else ", or leave it out"
        raise click.BadParameter(EMPTY + left_out, ctx, param)


class Whole(ParamType):
    """A whole number of `least` or more."""

    name = "n"

    def __init__(self, least: int) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if not re.fullmatch(r"[0-9]{1,9}", value) or int(value) < self.least:
            self.fail(f"{value!r} is not a whole number of {self.least} or more", param, ctx)
        return int(value)


class PriorityType(ParamType):
    name = "priority"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        level = value
        if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,9}", value):
            level = int(value)
        try:
            return units.priority(level)
        except BadInput as error:
            hint = closest(str(value), [one.name.lower() for one in units.Priority])
            self.fail(str(error) + (f"; did you mean {hint}?" if hint else ""), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:  # noqa: ARG002
        return completions.words((one.name.lower() for one in units.Priority), incomplete)


class OneOf(ParamType):
    """One word of a known set; the error for a misspelt word suggests the closest one. With `many`, several words
    separated by commas."""

    def __init__(self, name: str, known: Iterable[str], *, many: bool = False) -> None:
        self.name = name
        self.known = [str(word) for word in known]
        self.many = many

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        words = [str(value).lower()]
        if self.many:
            words = [word.strip().lower() for word in str(value).split(",")]
        for word in words:
            if word not in self.known:
                hint = closest(word, self.known)
                advice = f"did you mean {hint}?" if hint else f"write one of {', '.join(self.known)}"
                self.fail(f"no {self.name} named {word!r}; {advice}", param, ctx)
        return ",".join(words)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:  # noqa: ARG002
        return completions.words(self.known, incomplete)


NAME = Name()
DURATION = Duration()
TIMEOUT = Timeout()
INSTANT = Instant()
PAST = Past()
PRIORITY = PriorityType()
STATES = OneOf("state", State, many=True)
REASON = OneOf("reason", Reason)


def pairs(words: Iterable[str], what: str) -> dict[str, str]:
    """`name=value` words as a mapping. A name that is given twice is refused."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{what} {safe(word)[:100]!r}: write name=value", click.get_current_context())
        if name in found:
            raise click.UsageError(f"{what} {safe(name)[:100]!r} is given twice", click.get_current_context())
        found[name] = value
    return found


# -- filters -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Where:
    """A filter for jobs as the user wrote it. It can be shown as a phrase or as command-line options; `since` and
    `until` keep the text of the filter's times."""

    filter: JobFilter
    since: Moment | None = None
    until: Moment | None = None

    def with_states(self, states: tuple[State, ...]) -> Where:
        return replace(self, filter=with_changes(self.filter, states=states))

    def words(self) -> list[str]:
        """The filter as command-line options."""
        chosen = self.filter
        words = []
        for name, value in chosen.named().items():
            if name != "reason":
                words += [f"--{name}", str(value)]
        if chosen.states:
            words += ["--state", ",".join(chosen.states)]
        if chosen.reason:
            words += ["--reason", chosen.reason]
        if chosen.cluster:
            words += ["--cluster", chosen.cluster]
        if self.since:
            words += ["--since", self.since.text]
        if self.until:
            words += ["--until", self.until.text]
        return words

    def jobs(self, n: int | None = None) -> str:
        """`3 failed jobs in mail`, or without a number `failed jobs in mail`."""
        chosen = self.filter
        text = "" if n is None else f"{n:,} "
        text += f"{any_of(chosen.states)} " if chosen.states else ""
        text += "job" if n == 1 else "jobs"
        text += f" of task {chosen.task}" if chosen.task else ""
        text += f" in {chosen.queue}" if chosen.queue else ""
        text += f" with reason {chosen.reason}" if chosen.reason else ""
        text += f" of failure cluster {chosen.cluster}" if chosen.cluster else ""
        text += f" of priority {priority_name(chosen.priority)}" if chosen.priority is not None else ""
        for name in ("run", "owner", "key", "tag"):
            text += f" with {name} {value}" if (value := getattr(chosen, name)) else ""
        if self.since:
            text += f" since {self.since.text}" if self.since.is_instant else f" of the last {self.since.text}"
        if self.until:
            text += f" until {self.until.text}" + ("" if self.until.is_instant else " ago")
        return safe(text)


def filters(command: F) -> F:
    """Add the filter options to a command, which receives them as `where`."""

    @functools.wraps(command)
    def packed(*args: Any, state: tuple[str, ...], **rest: Any) -> Any:
        states = tuple(State(word) for word in dict.fromkeys(",".join(state).split(",")) if word)
        since, until = rest.pop("since"), rest.pop("until")
        named = {name: rest.pop(name) for name in (*STORE_FIELDS, "cluster")}
        job_filter = JobFilter(
            states=states, since=since.at if since else None, until=until.at if until else None, **named
        )
        return command(*args, where=Where(job_filter, since, until), **rest)

    for option in reversed(_FILTERS):
        packed = option(packed)
    return packed  # type: ignore[return-value]


_FILTERS = [
    click.option("--state", type=STATES, multiple=True, help="Jobs in this state. May be repeated."),
    click.option("--reason", type=REASON, help="Jobs that failed for this reason."),
    click.option("--queue", type=NAME, shell_complete=completions.queues, help="Jobs in this queue."),
    click.option("--task", type=NAME, shell_complete=completions.tasks, help="Jobs of this task."),
    click.option("--run", type=NAME, help="Jobs that belong to this run."),
    click.option("--owner", type=NAME, help="Jobs that belong to this owner."),
    click.option("--key", type=NAME, help="The job with this idempotency key."),
    click.option("--priority", type=PRIORITY, help="Jobs with exactly this priority: a name, or 0 to 10."),
    click.option("--tag", type=NAME, help="Jobs with this tag."),
    click.option(
        "--since",
        type=PAST,
        help="Jobs that ended after this time; unfinished jobs: were submitted after it. Write 1d for one day ago, "
        "18:00, or 2026-01-31T18:00+01:00.",
    ),
    click.option("--cluster", type=NAME, help="Jobs whose failure is of this kind, as `daybreak report` names it."),
    click.option("--until", type=PAST, help="Jobs that ended before this time; written as for --since."),
]

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")

"""Types of options and arguments, and the filters. Parsing is strict, and errors show the right spelling."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from daybreak.cli import completions
from daybreak.cli.errors import EMPTY
from daybreak.config import closest
from daybreak.core import units
from daybreak.core.errors import BadInput
from daybreak.core.model import Adaptive, Job, Reason, State
from daybreak.core.text import any_of, priority_name, safe
from daybreak.policy.failure_clusters import fingerprint_of

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
    """A filter for jobs: as arguments of the client, as a phrase, and as command-line options."""

    states: tuple[State, ...] = ()
    reason: str | None = None
    queue: str | None = None
    task: str | None = None
    run: str | None = None
    owner: str | None = None
    key: str | None = None
    priority: int | None = None
    tag: str | None = None
    since: Moment | None = None
    until: Moment | None = None
    cluster: str | None = None

    _NAMES = ("reason", "queue", "task", "run", "owner", "key", "priority", "tag")

    @property
    def is_empty(self) -> bool:
        return not self.states and not self.named and not self.is_timed

    @property
    def named(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._NAMES if getattr(self, name) is not None}

    @property
    def arguments(self) -> dict[str, Any]:
        return {"state": self.states or None, **self.named}

    @property
    def is_tallied(self) -> bool:
        """Whether stores keep a count of these jobs. For other filters they would have to read every job."""
        return set(self.named) <= {"queue", "task", "priority"} and not self.is_timed

    @property
    def is_timed(self) -> bool:
        """Whether the filter has a time or a cluster. Stores cannot filter by these, so `is_within` checks the jobs
        that they return."""
        return self.since is not None or self.until is not None or self.cluster is not None

    def is_within(self, job: Job) -> bool:
        """Whether the job ended in that time, with a failure of that cluster. For an unfinished job: whether it was
        submitted in that time."""
        if self.cluster is not None and fingerprint_of(job) != self.cluster:
            return False
        at = job.finished_at or job.created_at
        return (self.since is None or at >= self.since.at) and (self.until is None or at < self.until.at)

    def words(self) -> list[str]:
        """The filter as command-line options."""
        found = [word for name, value in self.named.items() if name != "reason" for word in (f"--{name}", str(value))]
        found += ["--state", ",".join(self.states)] if self.states else []
        found += ["--reason", self.reason] if self.reason else []
        found += ["--cluster", self.cluster] if self.cluster else []
        found += ["--since", self.since.text] if self.since else []
        return [*found, "--until", self.until.text] if self.until else found

    def jobs(self, n: int | None = None) -> str:
        """`3 failed jobs in mail`, or without a number `failed jobs in mail`."""
        noun = "job" if n == 1 else "jobs"
        text = " ".join([*([f"{n:,}"] if n is not None else []), *([any_of(self.states)] if self.states else []), noun])
        text += f" of task {self.task}" if self.task else ""
        text += f" in {self.queue}" if self.queue else ""
        text += f" with reason {self.reason}" if self.reason else ""
        text += f" of failure cluster {self.cluster}" if self.cluster else ""
        text += f" of priority {priority_name(self.priority)}" if self.priority is not None else ""
        for name in ("run", "owner", "key", "tag"):
            text += f" with {name} {value}" if (value := getattr(self, name)) else ""
        if self.since:
            text += f" since {self.since.text}" if self.since.is_instant else f" of the last {self.since.text}"
        if self.until:
            text += f" until {self.until.text}" + ("" if self.until.is_instant else " ago")
        return safe(text)


def filters(command: F) -> F:
    """Add the filter options to a command, which receives them as `where`."""

    @functools.wraps(command)
    def packed(*args: Any, state: tuple[str, ...], **rest: Any) -> Any:
        named = {name: rest.pop(name) for name in (*Where._NAMES, "since", "until", "cluster")}  # noqa: SLF001
        states = tuple(State(word) for word in dict.fromkeys(",".join(state).split(",")) if word)
        return command(*args, where=Where(states=states, **named), **rest)

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

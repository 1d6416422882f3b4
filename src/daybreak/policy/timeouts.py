"""How long something may take: as written, or adaptive: a base that follows what is seen, raised after timeouts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final, Literal, get_args

from daybreak.core.errors import BadInput
from daybreak.core.model import Options
from daybreak.core.units import MAX_DURATION
from daybreak.policy.durations import Durations, classes_of, longest_of, smooth_quantile

MAX_ESCALATIONS: Final = 5
ESCALATE: Final = 1.5  # where nobody says otherwise, but for jobs, which are escalated after the first time
ESCALATE_AFTER: Final = 3
BOUNDS: Final = (0.5, 3.0)  # of the base
QUANTILE: Final = 0.99
MARGIN: Final = 2.0  # times what all but one in a hundred took
LONGEST_MARGIN: Final = 1.1  # times the longest of all that came to its end
MIN_SAMPLES: Final = 20  # durations; with fewer the base holds
FULL_TRUST_SAMPLES: Final = 100  # with so many what is seen counts fully

Kind = Literal["wait", "acquisition", "renewal", "connection", "operation"]
KINDS: Final[tuple[str, ...]] = get_args(Kind)
BASES: Final[dict[str, timedelta]] = {
    "wait": timedelta(minutes=5),
    "acquisition": timedelta(seconds=30),
    "renewal": timedelta(seconds=10),
    "connection": timedelta(seconds=5),
    "operation": timedelta(seconds=60),
}


def base_of(kind: str) -> timedelta:
    try:
        return BASES[kind]
    except KeyError:
        raise BadInput(f"a time limit of kind {kind!r}: there are {', '.join(KINDS)}") from None


def multiplier(needed: float, seen: int) -> float:
    """By what a base is multiplied when all but one in a hundred of `seen` durations took at most `needed` times the
    base. Continuous and never falling in `needed`, and between a half and three."""
    wanted = min(max(needed * MARGIN, BOUNDS[0]), BOUNDS[1])
    trust = min(max((seen - MIN_SAMPLES) / (FULL_TRUST_SAMPLES - MIN_SAMPLES), 0.0), 1.0)
    return 1.0 + trust * (wanted - 1.0)


def adapted(base: timedelta, durations: Durations) -> timedelta:
    """The limit that follows from what was seen. What came to its end would do so again: with many durations up to
    three times the base, with few up to the base."""
    classes = classes_of(durations)
    seen = sum(classes.values())
    if seen <= MIN_SAMPLES:
        return base
    seconds = base.total_seconds()
    needed = smooth_quantile(classes, QUANTILE, at_most=seconds * BOUNDS[1] / MARGIN)
    needed = max(needed, longest_of(durations) * LONGEST_MARGIN / MARGIN)
    return min(base * multiplier(needed / seconds, seen), MAX_DURATION)


def connect_limit(base: timedelta, durations: Durations, late: int) -> timedelta:
    """The limit of the next connection to the store, after so many in a row were late. At most three times the base,
    however many: where a server has gone, who waits long finds late that it is back."""
    limit = escalated(adapted(base, durations), ESCALATE, escalation_level(late, ESCALATE_AFTER))
    return min(limit, base * BOUNDS[1])


def limit_for(options: Options, timeouts: int, durations: Durations | None = None) -> timedelta | None:
    """The execution limit of the next attempt. A written one is the same for every attempt. An adaptive one follows
    what was seen, and is longer by `escalate` for each attempt that ran into it, at most five times over."""
    if options.timeout is None or not options.adaptive:
        return options.timeout
    base = options.timeout if durations is None else adapted(options.timeout, durations)
    return escalated(base, options.escalate, escalation_level_of(options, timeouts))


def in_seconds(limit: timedelta) -> str:
    seconds = limit.total_seconds()
    return f"{seconds:.4g} s" if seconds < 1000 else f"{seconds:.0f} s"


def describe_limit(options: Options, limit: timedelta, shown: Callable[[timedelta], str] = in_seconds) -> str:
    """An execution limit and where it comes from: "4 s (written)", "2.3 s (adaptive, base 4 s)"."""
    if options.timeout is None:
        return shown(limit)
    if not options.adaptive:
        return f"{shown(limit)} (written)"
    return f"{shown(limit)} (adaptive, base {shown(options.timeout)})"


def escalated(limit: timedelta, escalate: float, levels: int) -> timedelta:
    """Longer by that factor so many times, up to the longest there is."""
    return limit * min(escalate**levels, max(1.0, MAX_DURATION / limit))


def escalation_level_of(options: Options, timeouts: int) -> int:
    """How many times the limit of a job's next attempt is raised; a written limit never is."""
    return escalation_level(timeouts, options.escalate_after) if options.adaptive else 0


def escalation_level(late: int, escalate_after: int) -> int:
    """How many times a limit is raised after it was too short so often."""
    return min(max(late - escalate_after + 1, 0), MAX_ESCALATIONS)

"""Time limits: fixed, or adaptive: a base that adapts to the durations that were seen, and is raised after timeouts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final, Literal, get_args

from msgspec import Struct

from daybreak.core.errors import BadInput
from daybreak.core.model import Options
from daybreak.core.units import MAX_DURATION
from daybreak.policy.durations import HOUR, WINDOW, Durations, classes_of, longest_of, smooth_quantile

MAX_ESCALATIONS: Final = 5
ESCALATE: Final = 1.5  # the default factor of every escalation
ESCALATE_AFTER: Final = 3  # the default for limits other than those of jobs, which escalate after the first timeout
BOUNDS: Final = (0.5, 3.0)  # of an adaptive limit, in multiples of its base
QUANTILE: Final = 0.99
MARGIN: Final = 2.0  # the limit is so many times the quantile
LONGEST_MARGIN: Final = 1.1  # the limit is at least so many times the longest duration that was not late
MIN_SAMPLES: Final = 20  # with fewer durations the limit is the base
FULL_TRUST_SAMPLES: Final = 100  # from so many durations on, the limit depends on them alone
PACE: Final = 0.1  # the pace at which FULL_TRUST_SAMPLES holds
MAX_FACTOR: Final = 100.0  # of a bound and of an escalation

Kind = Literal["wait", "acquisition", "renewal", "connection", "operation"]
KINDS: Final[tuple[str, ...]] = get_args(Kind)
BASES: Final[dict[str, timedelta]] = {
    "wait": timedelta(minutes=5),
    "acquisition": timedelta(seconds=30),
    "renewal": timedelta(seconds=10),
    "connection": timedelta(seconds=5),
    "operation": timedelta(seconds=60),
}


class LimitRules(Struct, frozen=True, kw_only=True):
    """How a limit follows what was seen.

    An `adaptive` limit stays between `lowest` and `highest` times its base. It depends on the durations of the last
    `window`, and moves away from the base at this `pace`: twice the pace needs half as many durations. A limit that was
    too short `escalate_after` times in a row is raised by the factor `escalate`, at most `max_escalations` times."""

    adaptive: bool = True
    lowest: float = BOUNDS[0]
    highest: float = BOUNDS[1]
    pace: float = PACE
    window: timedelta = WINDOW
    escalate: float = ESCALATE
    escalate_after: int = ESCALATE_AFTER
    max_escalations: int = MAX_ESCALATIONS


DEFAULT_RULES: Final = LimitRules()


def check_rules(rules: LimitRules) -> LimitRules:
    """The rules. Raises BadInput if one of them is out of range."""
    if not 0 < rules.lowest <= 1 <= rules.highest <= MAX_FACTOR:
        raise BadInput(
            f"bounds=({rules.lowest}, {rules.highest}): write two multiples of the base, the first above 0 and at most "
            f"1, the second from 1 to {MAX_FACTOR:g}"
        )
    if not 0 < rules.pace <= 1:
        raise BadInput(f"pace={rules.pace}: write a number above 0 and at most 1")
    if not HOUR <= rules.window <= WINDOW:
        raise BadInput(f"window={rules.window}: durations are kept for a day; write a duration from 1h to 24h")
    if not 1 <= rules.escalate <= MAX_FACTOR or rules.escalate_after < 1:
        raise BadInput("escalate must lie between 1 and 100, escalate_after must be 1 or more")
    if not 0 <= rules.max_escalations <= 50:
        raise BadInput(f"max_escalations={rules.max_escalations}: write a number from 0 to 50")
    return rules


def base_of(kind: str) -> timedelta:
    """The default base of a kind of time limit."""
    try:
        return BASES[kind]
    except KeyError:
        raise BadInput(f"no kind of time limit is named {kind!r}; the kinds are {', '.join(KINDS)}") from None


def multiplier(needed: float, seen: int, rules: LimitRules = DEFAULT_RULES) -> float:
    """The factor of a base if 99 % of the `seen` durations took at most `needed` times the base. It is continuous, does
    not fall as `needed` grows, and is between the bounds of the rules: 0.5 and 3, if they say nothing else."""
    wanted = min(max(needed * MARGIN, rules.lowest), rules.highest)
    needed_samples = (FULL_TRUST_SAMPLES - MIN_SAMPLES) * (PACE / rules.pace)
    trust = min(max((seen - MIN_SAMPLES) / needed_samples, 0.0), 1.0)
    # Rounding could exceed a bound by a little.
    return min(max(1.0 + trust * (wanted - 1.0), rules.lowest), rules.highest)


def adapted(base: timedelta, durations: Durations, rules: LimitRules = DEFAULT_RULES) -> timedelta:
    """The limit that follows from the durations. Work that finished once can finish again under the new limit, up to
    the highest multiple of the base if there are many durations, and up to the base if there are few."""
    classes = classes_of(durations)
    seen = sum(classes.values())
    if seen <= MIN_SAMPLES or not rules.adaptive:
        return base
    seconds = base.total_seconds()
    needed = smooth_quantile(classes, QUANTILE, at_most=seconds * rules.highest / MARGIN)
    needed = max(needed, longest_of(durations) * LONGEST_MARGIN / MARGIN)
    return min(base * multiplier(needed / seconds, seen, rules), MAX_DURATION)


def connect_limit(base: timedelta, durations: Durations, late: int) -> timedelta:
    """The limit of the next connection to the store, after so many consecutive `late` ones. It is at most three times
    the base: a client that waits long for a dead server notices late that the server is back."""
    limit = escalated(adapted(base, durations), ESCALATE, escalation_level(late, ESCALATE_AFTER))
    return min(limit, base * BOUNDS[1])


def limit_for(options: Options, timeouts: int, durations: Durations | None = None) -> timedelta | None:
    """The execution limit of the next attempt. A fixed limit is the same for every attempt. An adaptive one follows the
    durations, and is raised by `escalate` for each attempt that timed out, at most five times."""
    if options.timeout is None or not options.adaptive:
        return options.timeout
    base = options.timeout if durations is None else adapted(options.timeout, durations)
    return escalated(base, options.escalate, escalation_level_of(options, timeouts))


def in_seconds(limit: timedelta) -> str:
    """A duration as text, such as "2.3 s"."""
    seconds = limit.total_seconds()
    return f"{seconds:.4g} s" if seconds < 1000 else f"{seconds:.0f} s"


def describe_limit(options: Options, limit: timedelta, shown: Callable[[timedelta], str] = in_seconds) -> str:
    """An execution limit and where it comes from, as text: "4 s (written)", "2.3 s (adaptive, base 4 s)"."""
    if options.timeout is None:
        return shown(limit)
    if not options.adaptive:
        return f"{shown(limit)} (written)"
    return f"{shown(limit)} (adaptive, base {shown(options.timeout)})"


def escalated(limit: timedelta, escalate: float, levels: int) -> timedelta:
    """The limit, raised by this factor so many times, up to the longest duration there is."""
    return limit * min(escalate**levels, max(1.0, MAX_DURATION / limit))


def escalation_level_of(options: Options, timeouts: int) -> int:
    """How many times the limit of a job's next attempt is raised. A fixed limit is never raised."""
    return escalation_level(timeouts, options.escalate_after) if options.adaptive else 0


def escalation_level(late: int, escalate_after: int, at_most: int = MAX_ESCALATIONS) -> int:
    """How many times a limit is raised after it was too short `late` times."""
    return min(max(late - escalate_after + 1, 0), at_most)


def level_by_rules(late: int, rules: LimitRules) -> int:
    """How many times a limit with these rules is raised after it was too short `late` times in a row."""
    return escalation_level(late, rules.escalate_after, rules.max_escalations)

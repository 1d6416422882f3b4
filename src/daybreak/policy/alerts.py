"""When something is wrong enough to tell a person: thresholds, hysteresis, and what changed.

Pure: `figures` in, the next state and the notices out. A notice is made when the level of an alert changes, and never
again for the same level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

Level = Literal["ok", "warning", "critical"]
LEVELS: Final[tuple[Level, ...]] = ("ok", "warning", "critical")

MIN_OPERATIONS: Final = 20  # a share of fewer operations says nothing
LEAVE_BELOW: Final = 0.8  # a level is left only below this share of its threshold
CALM_CHECKS: Final = 2  # and only after this many checks in a row
MAX_ALERTS: Final = 500  # alerts that are kept; more are not watched
FORGET_AFTER: Final = timedelta(days=7)  # an alert that has been ok for so long is forgotten
MAX_NOTICES: Final = 100  # notices that are kept, with how their delivery went


class Threshold(Struct, frozen=True):
    """From which value on an alert is a warning, and from which it is critical. None: never."""

    warning: float | None = None
    critical: float | None = None


class Rule(Struct, frozen=True, kw_only=True):
    """One watched value. `unit` says how to show it; `text` is the sentence of an alert, with {value} and {subject};
    `advice` says what to do, with {subject}."""

    name: str
    unit: Literal["jobs", "sagas", "seconds", "share"]
    text: str
    advice: str
    threshold: Threshold


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        name="depth", unit="jobs", text="{value} jobs wait in queue {subject}",
        advice="start more workers, or see what waits: daybreak jobs --queue {subject} --state queued",
        threshold=Threshold(100, 500),
    ),
    Rule(
        name="average_wait", unit="seconds", text="jobs of queue {subject} wait {value} on average before they start",
        advice="start more workers, or see what is slow: daybreak stats {subject}", threshold=Threshold(30, 120),
    ),
    Rule(
        name="timeout_rate", unit="share", text="{value} of the attempts of queue {subject} exceed their time limit",
        advice="see them: daybreak jobs --queue {subject} --state failed --reason timeout",
        threshold=Threshold(0.05, 0.15),
    ),
    Rule(
        name="failure_rate", unit="share", text="{value} of the attempts of queue {subject} fail permanently",
        advice="see the errors: daybreak jobs --queue {subject} --state failed", threshold=Threshold(0.10, 0.25),
    ),
    Rule(
        name="retry_failures", unit="share", text="{value} of the retries of queue {subject} fail",
        advice="see the errors: daybreak jobs --queue {subject} --state failed", threshold=Threshold(0.10, 0.25),
    ),
    Rule(
        name="no_worker", unit="seconds",
        text="jobs of queue {subject} have waited for {value}, and no live worker serves the queue",
        advice="start one: daybreak worker TARGET --queues {subject}", threshold=Threshold(None, 60),
    ),
    Rule(
        name="oldest_wait", unit="seconds", text="the oldest job of queue {subject} has waited for {value}",
        advice="see it: daybreak jobs --queue {subject} --state queued --limit 1", threshold=Threshold(3600, 6 * 3600),
    ),
    Rule(
        name="lock_held", unit="seconds", text="lock {subject} has been held for {value} while others wait",
        advice="see who holds it: daybreak locks; release it by force: daybreak locks release {subject} --force",
        threshold=Threshold(3600, 4 * 3600),
    ),
    Rule(
        name="stuck_sagas", unit="sagas", text="{value} of saga {subject} cannot be undone, and wait for somebody",
        advice="see which, and continue them: daybreak sagas --state stuck", threshold=Threshold(1, 10),
    ),
)  # fmt: skip
BY_NAME: Final[Mapping[str, Rule]] = {rule.name: rule for rule in RULES}


class Figure(Struct, frozen=True):
    """The measured value of one subject: a queue, a lock, or the sagas of one name. A `value` of None means that there
    is too little data."""

    rule: str
    subject: str
    value: float | None


class Alert(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one rule for one subject. `calm` counts the checks in a row whose value is below the level."""

    rule: str
    subject: str
    level: Level = "ok"
    value: float = 0.0
    since: datetime
    calm: int = 0


class Notice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change of level, to be delivered once. `undelivered` names the sinks that have not got it yet; `errors` says
    for each sink why the delivery failed; it is not tried again."""

    id: str
    rule: str
    subject: str
    level: Level
    before: Level
    value: float
    threshold: float | None
    at: datetime
    text: str
    advice: str
    undelivered: tuple[str, ...] = ()
    errors: dict[str, str] = {}


class AlertState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All alerts and the latest notices; kept as one record."""

    alerts: tuple[Alert, ...] = ()
    notices: tuple[Notice, ...] = ()
    made: int = 0  # notices so far, which numbers them
    looked_at: datetime | None = None
    holder: str = ""  # the active watch


Thresholds = Mapping[tuple[str, str | None], Threshold]  # of a rule and a subject, or of a rule for all subjects


def threshold_of(thresholds: Thresholds, rule: str, subject: str) -> Threshold:
    """The threshold that holds for a subject: its own, else the rule's, else the default."""
    for key in ((rule, subject), (rule, None)):
        if key in thresholds:
            return thresholds[key]
    return BY_NAME[rule].threshold


def judge(
    state: AlertState, figures: Iterable[Figure], now: datetime, *, thresholds: Thresholds, sinks: tuple[str, ...]
) -> AlertState:
    """The state after a check. Alerts whose subject has no figure count as ok."""
    known = {(alert.rule, alert.subject): alert for alert in state.alerts}
    seen: dict[tuple[str, str], Figure] = {(figure.rule, figure.subject): figure for figure in figures}
    alerts: list[Alert] = []
    notices = list(state.notices)
    made = state.made
    for key in sorted(known.keys() | seen.keys()):
        rule, subject = key
        if rule not in BY_NAME:
            continue
        before = known.get(key) or Alert(rule=rule, subject=subject, since=now)
        figure = seen.get(key, Figure(rule, subject, 0.0))
        threshold = threshold_of(thresholds, rule, subject)
        after = _next(before, figure.value, threshold, now)
        if after.level != before.level:
            made += 1
            notices.append(_notice(made, before, after, threshold, now, sinks))
        is_forgotten = after.level == "ok" and now - after.since > FORGET_AFTER
        is_new_and_ok = key not in known and after.level == "ok"
        if not is_forgotten and not is_new_and_ok:
            alerts.append(after)
    alerts.sort(key=lambda alert: (-LEVELS.index(alert.level), alert.since))
    return AlertState(
        alerts=tuple(alerts[:MAX_ALERTS]),
        notices=tuple(notices[-MAX_NOTICES:]),
        made=made,
        looked_at=now,
        holder=state.holder,
    )


def _next(alert: Alert, value: float | None, threshold: Threshold, now: datetime) -> Alert:
    if value is None:
        return alert  # too little data: the alert stays as it is
    reached = _level(value, threshold, 1.0)
    if LEVELS.index(reached) > LEVELS.index(alert.level):
        return replace(alert, level=reached, value=value, since=now, calm=0)
    # The level falls only if the value is clearly below the threshold, in several checks in a row.
    held = _level(value, threshold, LEAVE_BELOW)
    if LEVELS.index(held) >= LEVELS.index(alert.level):
        return replace(alert, value=value, calm=0)
    if alert.calm + 1 < CALM_CHECKS:
        return replace(alert, value=value, calm=alert.calm + 1)
    return replace(alert, level=held, value=value, since=now, calm=0)


def _level(value: float, threshold: Threshold, share: float) -> Level:
    if threshold.critical is not None and value >= threshold.critical * share:
        return "critical"
    if threshold.warning is not None and value >= threshold.warning * share:
        return "warning"
    return "ok"


def _notice(
    number: int, before: Alert, after: Alert, threshold: Threshold, now: datetime, sinks: tuple[str, ...]
) -> Notice:
    rule = BY_NAME[after.rule]
    limit = threshold.critical if "critical" in (after.level, before.level) else threshold.warning
    label = "recovered" if after.level == "ok" else after.level
    return Notice(
        id=f"{number}-{after.rule}-{after.level}", rule=after.rule, subject=after.subject, level=after.level,
        before=before.level, value=after.value, threshold=limit, at=now,
        text=f"{label}: {alert_text(rule, after)}",
        advice=rule.advice.format(subject=after.subject) if after.level != "ok" else "", undelivered=sinks,
    )  # fmt: skip


def alert_text(rule: Rule, alert: Alert) -> str:
    """The alert as a sentence."""
    return rule.text.format(value=show_value(rule, alert.value), subject=alert.subject)


def show_value(rule: Rule, value: float) -> str:
    """A value as people read it."""
    if rule.unit == "share":
        return f"{value * 100:.1f} %"
    if rule.unit == "seconds":
        return f"{value:.0f} s"
    return f"{value:.0f}"


def delivered(state: AlertState, notice: str, sink: str, error: str = "") -> AlertState:
    """The state after a sink has got a notice, or after its delivery has failed."""
    notices = []
    for one in state.notices:
        if one.id == notice:
            left = tuple(name for name in one.undelivered if name != sink)
            errors = {**one.errors, sink: error} if error else one.errors
            one = replace(one, undelivered=left, errors=errors)  # noqa: PLW2901
        notices.append(one)
    return replace(state, notices=tuple(notices))

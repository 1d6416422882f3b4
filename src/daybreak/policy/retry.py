"""When a failed attempt is tried again, and whether."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Final, Literal, get_args, get_type_hints

import msgspec

from daybreak.core.errors import BadInput
from daybreak.core.model import Failure, Retry
from daybreak.core.units import MAX_DURATION, ZERO

PRESETS: Final = {
    "default": Retry(),
    "aggressive": Retry(
        strategy="adaptive", attempts=5, delay=timedelta(seconds=0.5), factor=1.5, cap=timedelta(seconds=60), jitter=0.2
    ),
    "conservative": Retry(strategy="exponential", attempts=2, delay=timedelta(seconds=2), cap=timedelta(seconds=15)),
    "simulator": Retry(strategy="exponential", attempts=3, delay=timedelta(seconds=2), unknown="fail"),
    "upload": Retry(
        strategy="exponential", attempts=5, delay=timedelta(minutes=5), cap=timedelta(hours=2)
    ),
}  # fmt: skip

_CHOICES: Final = {name: get_args(get_type_hints(Retry)[name]) for name in ("strategy", "unknown")}

TYPICAL_SUCCESS: Final = 2 / 3  # the share of tries that succeed, where nobody knows better

Kind = Literal["transient", "permanent", "unknown"]

# Names, not classes: a failure is judged where the exception's class may not even be importable.
_PERMANENT: Final = frozenset({
    "FileNotFoundError", "PermissionError", "IsADirectoryError", "NotADirectoryError",
    "TypeError", "ValueError", "AttributeError", "NameError", "LookupError", "AssertionError", "ArithmeticError",
    "ImportError", "SyntaxError", "NotImplementedError", "RecursionError", "UnicodeError",
})  # fmt: skip
_TRANSIENT: Final = frozenset({"OSError", "TimeoutError", "ConnectionError", "EOFError", "TransportError"})
_TRANSIENT_STATUS: Final = frozenset({408, 425, 429, *range(500, 600)})


def parse_retry(value: object) -> Retry:
    """What people write for retry: a Retry, a preset's name, or a number of attempts."""
    match value:
        case Retry():
            retry = value
        case bool() | None:
            raise BadInput(
                f"retry={value!r}: write a number of attempts (1 is no retry), a preset's name, or Retry(...)"
            )
        case int():
            retry = Retry(attempts=value)
        case str() if value in PRESETS:
            retry = PRESETS[value]
        case _:
            raise BadInput(
                f"retry={value!r}: no such preset; there are {', '.join(PRESETS)}, or give a number or Retry(...)"
            )
    for name, choices in _CHOICES.items():
        if (said := getattr(retry, name)) not in choices:
            raise BadInput(f"retry: {name}={said!r}; there are {', '.join(choices)}")
    try:  # a Struct does not check what it is made of
        retry = msgspec.convert(msgspec.structs.asdict(retry), Retry)
    except msgspec.ValidationError as error:
        raise BadInput(f"retry: {error}") from None
    if not 1 <= retry.attempts <= 1_000_000:
        raise BadInput(f"retry: attempts={retry.attempts}; the first try counts, so write 1 to 1,000,000")
    if (
        not 0 <= retry.jitter <= 1
        or not 1 <= retry.factor <= 1000
        or not ZERO <= retry.delay <= MAX_DURATION
        or not ZERO <= retry.cap <= MAX_DURATION
    ):
        raise BadInput(
            "retry: jitter lies between 0 and 1, factor between 1 and 1000, delay and cap between 0 and 100 years"
        )
    return retry


def classify(failure: Failure, retry: Retry) -> Kind:
    """What an error means. What the task itself said goes first, then its lists, then what the name of the class says;
    the most special class decides."""
    if failure.verdict is not None:
        return failure.verdict
    for kind in failure.kinds:
        short = kind.rsplit(".", 1)[-1]
        if kind in retry.permanent or short in retry.permanent:
            return "permanent"
        if kind in retry.transient or short in retry.transient:
            return "transient"
    if failure.status is not None:
        return "transient" if failure.status in _TRANSIENT_STATUS else "permanent"
    if failure.retry_after is not None:
        return "transient"
    for kind in failure.kinds:
        short = kind.rsplit(".", 1)[-1]
        if short in _PERMANENT:
            return "permanent"
        if short in _TRANSIENT:
            return "transient"
    return "unknown"


def may_retry(failure: Failure, retry: Retry) -> bool:
    kind = classify(failure, retry)
    return kind == "transient" or (kind == "unknown" and retry.unknown == "retry")


def adaptive_factor(success: float) -> float:
    """By what an adaptive wait is multiplied: a half where all tries succeed, four where none does, one where it is
    `TYPICAL_SUCCESS`. Continuous, and never shorter for less success."""
    return float(2 ** (3 * (1 - min(max(success, 0.0), 1.0)) - 1))


def delay_for(
    retry: Retry, attempt: int, chance: float, retry_after: timedelta | None = None, *, success: float = TYPICAL_SUCCESS
) -> timedelta:
    """The wait after failed attempt number `attempt`. `chance` in [0, 1) spreads a jittered wait symmetrically. An
    adaptive one is the longer, the smaller the share of tries is that lately had `success`.

    The cap bounds the middle of the spread, so that many jobs at the cap do not come back in one instant. Never shorter
    than the server asked for."""
    base = retry.delay.total_seconds()
    match retry.strategy:
        case "fixed":
            wait = base
        case "linear":
            wait = base * attempt
        case "exponential" | "jittered" | "adaptive":
            # Beyond 2^64 every cap is long reached; a larger power would overflow a float.
            grown = (attempt - 1) * math.log2(retry.factor) < 64
            wait = base * (retry.factor ** (attempt - 1) if grown else 2.0**64)
    if retry.strategy == "adaptive":
        wait *= adaptive_factor(success)
    wait = min(wait, retry.cap.total_seconds())
    if retry.strategy in ("jittered", "adaptive"):
        wait *= 1 + retry.jitter * (2 * chance - 1)
    found = timedelta(seconds=wait)
    return found if retry_after is None else max(found, min(retry_after, MAX_DURATION))

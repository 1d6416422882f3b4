"""Retries: whether a failed attempt is retried, and after which delay."""

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

TYPICAL_SUCCESS: Final = 2 / 3  # the assumed share of attempts that succeed if nothing is known about the resource

Kind = Literal["transient", "permanent", "unknown"]

# Names, not classes: the process that classifies a failure may not be able to import the exception's class.
_PERMANENT: Final = frozenset({
    "FileNotFoundError", "PermissionError", "IsADirectoryError", "NotADirectoryError",
    "TypeError", "ValueError", "AttributeError", "NameError", "LookupError", "AssertionError", "ArithmeticError",
    "ImportError", "SyntaxError", "NotImplementedError", "RecursionError", "UnicodeError",
})  # fmt: skip
_TRANSIENT: Final = frozenset({"OSError", "TimeoutError", "ConnectionError", "EOFError", "TransportError"})
_TRANSIENT_STATUS: Final = frozenset({408, 425, 429, *range(500, 600)})


def parse_retry(value: object) -> Retry:
    """The value of `retry=`: a Retry, the name of a preset, or a number of attempts."""
    match value:
        case Retry():
            retry = value
        case bool() | None:
            raise BadInput(
                f"retry={value!r}: write a number of attempts (1 means no retry), the name of a preset, or Retry(...)"
            )
        case int():
            retry = Retry(attempts=value)
        case str() if value in PRESETS:
            retry = PRESETS[value]
        case _:
            raise BadInput(
                f"retry={value!r}: no such preset; write {', '.join(PRESETS)}, a number of attempts, or Retry(...)"
            )
    for name, choices in _CHOICES.items():
        choice = getattr(retry, name)
        if choice not in choices:
            raise BadInput(f"retry: {name}={choice!r}; choose one of {', '.join(choices)}")
    try:  # the constructor of a Struct does not check types
        retry = msgspec.convert(msgspec.structs.asdict(retry), Retry)
    except msgspec.ValidationError as error:
        raise BadInput(f"retry: {error}") from None
    if not 1 <= retry.attempts <= 1_000_000:
        raise BadInput(f"retry: attempts={retry.attempts}; write 1 to 1,000,000, the first attempt included")
    if not 0 <= retry.jitter <= 1:
        raise BadInput(f"retry: jitter={retry.jitter}; write a number from 0 to 1")
    if not 1 <= retry.factor <= 1000:
        raise BadInput(f"retry: factor={retry.factor}; write a number from 1 to 1000")
    for name in ("delay", "cap"):
        if not ZERO <= getattr(retry, name) <= MAX_DURATION:
            raise BadInput(f"retry: {name}={getattr(retry, name)}; write a duration from 0 to 100 years")
    return retry


def classify(failure: Failure, retry: Retry) -> Kind:
    """Whether an error is transient, permanent or unknown. First counts what the task itself said, then the lists of
    its Retry, then an HTTP status or a Retry-After, then the name of the exception's class. Of an exception's classes
    the most specific one that is known decides."""
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
    """Whether an error of this kind is retried at all."""
    kind = classify(failure, retry)
    return kind == "transient" or (kind == "unknown" and retry.unknown == "retry")


def adaptive_factor(success: float) -> float:
    """The factor of an adaptive delay: 0.5 if all attempts succeed, 4 if none does, 1 at `TYPICAL_SUCCESS`. It is
    continuous and grows as success falls."""
    return float(2 ** (3 * (1 - min(max(success, 0.0), 1.0)) - 1))


def delay_for(
    retry: Retry, attempt: int, chance: float, retry_after: timedelta | None = None, *, success: float = TYPICAL_SUCCESS
) -> timedelta:
    """The delay after failed attempt number `attempt`. `chance` in [0, 1) spreads a jittered delay symmetrically. An
    adaptive delay is longer if a smaller share of recent attempts had `success`.

    The cap bounds the middle of the spread, so that many jobs at the cap do not retry in the same instant. The delay is
    never shorter than `retry_after`, which the server asked for."""
    base = retry.delay.total_seconds()
    match retry.strategy:
        case "fixed":
            wait = base
        case "linear":
            wait = base * attempt
        case "exponential" | "jittered" | "adaptive":
            # Beyond 2^64 every cap is reached; a larger power would overflow a float.
            if (attempt - 1) * math.log2(retry.factor) < 64:
                wait = base * retry.factor ** (attempt - 1)
            else:
                wait = base * 2.0**64
    if retry.strategy == "adaptive":
        wait *= adaptive_factor(success)
    wait = min(wait, retry.cap.total_seconds())
    if retry.strategy in ("jittered", "adaptive"):
        wait *= 1 + retry.jitter * (2 * chance - 1)
    delay = timedelta(seconds=wait)
    if retry_after is None:
        return delay
    return max(delay, min(retry_after, MAX_DURATION))

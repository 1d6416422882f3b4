from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybreak.core.errors import BadInput
from daybreak.core.model import Failure, Retry
from daybreak.core.units import MAX_DURATION
from daybreak.policy.retry import PRESETS, TYPICAL_SUCCESS, adaptive_factor, classify, delay_for, may_retry, parse_retry

SECOND = timedelta(seconds=1)

chances = st.floats(0, 1, exclude_max=True)
retries = st.builds(
    Retry,
    strategy=st.sampled_from(["fixed", "linear", "exponential", "jittered", "adaptive"]),
    delay=st.timedeltas(timedelta(), timedelta(days=1)),
    factor=st.floats(1, 1000),
    cap=st.timedeltas(timedelta(), MAX_DURATION),
    jitter=st.floats(0, 1),
)


def waits(retry: Retry, attempts: int, chance: float = 0.5) -> list[float]:
    return [delay_for(retry, n, chance).total_seconds() for n in range(1, attempts + 1)]


# -- what people write -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "strategy", "attempts", "delay", "cap", "unknown"),
    [
        ("default", "jittered", 3, SECOND, 30 * SECOND, "retry"),
        ("conservative", "exponential", 2, 2 * SECOND, 15 * SECOND, "retry"),
        ("simulator", "exponential", 3, 2 * SECOND, 30 * SECOND, "fail"),
        ("upload", "exponential", 5, timedelta(minutes=5), timedelta(hours=2), "retry"),
    ],
)
def test_a_preset_has_its_stated_values(name, strategy, attempts, delay, cap, unknown):
    preset = PRESETS[name]
    assert parse_retry(name) == preset
    assert (preset.strategy, preset.attempts, preset.delay, preset.cap) == (strategy, attempts, delay, cap)
    assert (preset.factor, preset.jitter, preset.unknown) == (2.0, 0.1, unknown)


def test_the_presets_wait_as_stated():
    assert waits(PRESETS["default"], 7) == [1, 2, 4, 8, 16, 30, 30]
    assert waits(PRESETS["simulator"], 2) == [2, 4]
    assert waits(PRESETS["upload"], 4) == [300, 600, 1200, 2400]


def test_a_number_is_short_for_that_many_attempts():
    assert parse_retry(5) == Retry(attempts=5)
    assert parse_retry(1).attempts == 1


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (0, "write 1 to 1,000,000"),
        (-1, "write 1 to 1,000,000"),
        (1_000_001, "write 1 to 1,000,000"),
        (True, "1 means no retry"),
        (None, "1 means no retry"),
        ("eager", "no such preset; write default, aggressive, conservative, simulator, upload"),
        (2.5, "no such preset"),
        (Retry(jitter=1.5), "write a number from 0 to 1"),
        (Retry(jitter=float("nan")), "write a number from 0 to 1"),
        (Retry(factor=0.5), "write a number from 1 to 1000"),
        (Retry(delay=-SECOND), "write a duration from 0 to 100 years"),
        (Retry(cap=timedelta.max), "write a duration from 0 to 100 years"),
        (Retry(strategy="expo"), "strategy='expo'; choose one of fixed, linear, exponential, jittered, adaptive"),
        (Retry(strategy=[]), "choose one of fixed, linear, exponential, jittered, adaptive"),
        (Retry(unknown="x"), "unknown='x'; choose one of retry, fail"),
        (Retry(attempts=2.5), r"Expected `int`, got `float` - at `\$.attempts`"),
        (Retry(transient="OSError"), r"Expected `array`, got `str` - at `\$.transient`"),
    ],
)
def test_what_is_no_retry_is_refused(written, said):
    with pytest.raises(BadInput, match=said):
        parse_retry(written)


def test_waits_are_written_as_text_or_as_timedelta():
    written = Retry(delay="90s", cap="1h30m")
    assert written == Retry(delay=90 * SECOND, cap=timedelta(hours=1.5))
    assert parse_retry(written) == written
    assert waits(written, 2) == [90, 180]


@pytest.mark.parametrize("name", ["delay", "cap"])
@pytest.mark.parametrize(("said", "told"), [(2, "write '2s'"), ("2", "write '90s'"), ("-1s", "write"), (None, "write")])
def test_a_wait_without_a_unit_is_refused_with_the_right_spelling(name, said, told):
    with pytest.raises(BadInput, match=f"retry: {name}: .*{told}"):
        Retry(**{name: said})


# -- what an error means -----------------------------------------------------------------------------------------------


def kinds_of(error: type[BaseException]) -> tuple[str, ...]:
    return tuple(f"{c.__module__}.{c.__qualname__}" for c in error.__mro__ if c not in (object, BaseException))


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (ConnectionRefusedError, "transient"),
        (ConnectionResetError, "transient"),
        (BrokenPipeError, "transient"),
        (TimeoutError, "transient"),
        (OSError, "transient"),
        (BlockingIOError, "transient"),
        (EOFError, "transient"),
        (FileNotFoundError, "permanent"),
        (PermissionError, "permanent"),
        (IsADirectoryError, "permanent"),
        (NotADirectoryError, "permanent"),
        (TypeError, "permanent"),
        (ValueError, "permanent"),
        (UnicodeDecodeError, "permanent"),
        (KeyError, "permanent"),
        (IndexError, "permanent"),
        (AttributeError, "permanent"),
        (NameError, "permanent"),
        (AssertionError, "permanent"),
        (ZeroDivisionError, "permanent"),
        (ModuleNotFoundError, "permanent"),
        (NotImplementedError, "permanent"),
        (RecursionError, "permanent"),
        (RuntimeError, "unknown"),
        (Exception, "unknown"),
        (MemoryError, "unknown"),
    ],
)
def test_the_name_of_an_error_says_what_it_means(error, meaning):
    assert classify(Failure(message="", kinds=kinds_of(error)), Retry()) == meaning


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (408, "transient"), (425, "transient"), (429, "transient"), (500, "transient"), (503, "transient"),
        (599, "transient"), (400, "permanent"), (401, "permanent"), (404, "permanent"), (409, "permanent"),
        (422, "permanent"), (600, "permanent"),
    ],
)  # fmt: skip
def test_a_status_says_more_than_a_name(status, meaning):
    assert classify(Failure(message="", status=status, kinds=("RuntimeError",)), Retry()) == meaning


def test_whoever_asks_to_come_back_later_is_tried_again():
    assert classify(Failure(message="", retry_after=SECOND), Retry()) == "transient"


def test_what_the_task_said_overrules_all():
    retry = Retry(transient=("ValueError",))
    failure = Failure(message="", verdict="permanent", kinds=("ValueError",), status=503, retry_after=SECOND)
    assert classify(failure, retry) == "permanent"
    assert classify(Failure(message="", verdict="transient", kinds=("TypeError",)), Retry()) == "transient"


@pytest.mark.parametrize("listed", ["LicenceBusy", "acme.errors.LicenceBusy"])
def test_a_tasks_own_lists_overrule_status_and_name_by_short_or_full_name(listed):
    failure = Failure(message="", kinds=("acme.errors.LicenceBusy", "builtins.ValueError"), status=400)
    assert classify(failure, Retry(transient=(listed,))) == "transient"
    assert classify(failure, Retry(permanent=(listed,))) == "permanent"


def test_the_most_special_class_decides():
    failure = Failure(message="", kinds=("LicenceBusy", "LicenceError"))
    assert classify(failure, Retry(transient=("LicenceBusy",), permanent=("LicenceError",))) == "transient"
    assert classify(failure, Retry(permanent=("LicenceBusy",), transient=("LicenceError",))) == "permanent"


def test_an_unknown_error_is_retried_unless_the_retry_says_fail():
    failure = Failure(message="", kinds=("Strange",))
    assert may_retry(failure, Retry())
    assert not may_retry(failure, Retry(unknown="fail"))


# -- how long to wait --------------------------------------------------------------------------------------------------


def test_strategies_grow_as_their_names_say():
    def grown(strategy):
        return waits(Retry(strategy=strategy, delay=2 * SECOND, factor=3, cap=timedelta(hours=1)), 4)

    assert grown("fixed") == [2, 2, 2, 2]
    assert grown("linear") == [2, 4, 6, 8]
    assert grown("exponential") == [2, 6, 18, 54]


def test_jitter_spreads_to_both_sides_alike():
    retry = Retry(jitter=0.1)
    assert delay_for(retry, 1, 0.0) == 0.9 * SECOND
    assert delay_for(retry, 1, 0.5) == SECOND
    assert delay_for(retry, 1, 1.0) == 1.1 * SECOND


@given(retries, st.integers(1, 1000), chances)
def test_case_24_jitter_is_symmetric_and_within_its_percentage(retry, attempt, chance):
    middle = delay_for(retry, attempt, 0.5)
    low, high = delay_for(retry, attempt, chance), delay_for(retry, attempt, 1 - chance)
    spread = middle * retry.jitter if retry.strategy in ("jittered", "adaptive") else timedelta()
    close = timedelta(microseconds=2)
    assert abs((low + high) - 2 * middle) <= close + middle * 1e-12
    assert abs(low - middle) <= spread + close + middle * 1e-12
    assert middle <= retry.cap + close


@given(retries, st.integers(1, 200), chances)
def test_a_later_attempt_never_waits_shorter(retry, attempt, chance):
    assert delay_for(retry, attempt, chance) <= delay_for(retry, attempt + 1, chance)


@given(retries, st.sampled_from([1, 2, 64, 65, 66, 1000, 10**6, 10**9]), chances)
def test_no_attempt_is_too_late_to_count(retry, attempt, chance):
    assert timedelta() <= delay_for(retry, attempt, chance) <= 2 * MAX_DURATION


@pytest.mark.parametrize("factor", [1.01, 1.1, 2.0, 1000.0])
def test_even_slow_growth_reaches_the_cap(factor):
    retry = Retry(strategy="exponential", factor=factor, cap=timedelta(hours=2))
    assert delay_for(retry, 10**6, 0.5) == retry.cap


@given(retries, st.integers(1, 50), chances, st.timedeltas(timedelta(), timedelta(days=2)))
def test_never_sooner_than_the_server_asked(retry, attempt, chance, asked):
    found = delay_for(retry, attempt, chance, asked)
    assert found == max(asked, delay_for(retry, attempt, chance))


# -- adaptive ----------------------------------------------------------------------------------------------------------

SHARES = st.floats(0, 1)


@given(SHARES, SHARES)
def test_an_adaptive_wait_is_never_shorter_for_less_success(one, other):
    less, more = sorted((one, other))
    assert adaptive_factor(less) >= adaptive_factor(more)


@given(SHARES, st.floats(0, 1e-3))
def test_an_adaptive_wait_has_no_steps(share, step):
    assert abs(adaptive_factor(min(share + step, 1.0)) - adaptive_factor(share)) <= 10 * step + 1e-9


def test_an_adaptive_wait_is_a_half_to_four_times_as_long():
    assert (adaptive_factor(1.0), adaptive_factor(0.0)) == (0.5, 4.0)
    assert adaptive_factor(TYPICAL_SUCCESS) == pytest.approx(1.0)


def test_the_aggressive_preset_adapts():
    retry = parse_retry("aggressive")
    assert (retry.strategy, retry.attempts, retry.jitter) == ("adaptive", 5, 0.2)
    waits = [delay_for(retry, attempt, 0.5).total_seconds() for attempt in (1, 2, 3)]
    assert waits == pytest.approx([0.5, 0.75, 1.125])
    assert delay_for(retry, 1, 0.5, success=0.0).total_seconds() == pytest.approx(2.0)
    assert delay_for(retry, 40, 0.5, success=0.0) == timedelta(seconds=60)


@given(st.floats(0, 1, exclude_max=True), SHARES, st.integers(1, 50))
def test_an_adaptive_wait_is_spread_symmetrically_within_its_percentage(chance, success, attempt):
    retry = parse_retry("aggressive")
    middle = delay_for(retry, attempt, 0.5, success=success)
    wait, mirrored = (delay_for(retry, attempt, c, success=success) for c in (chance, 1 - chance))
    assert abs(wait - middle) <= middle * 0.2 + timedelta(microseconds=2)
    assert abs((wait - middle) + (mirrored - middle)) <= timedelta(microseconds=2)

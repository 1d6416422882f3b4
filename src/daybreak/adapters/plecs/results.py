"""What a simulation answers, checked: PLECS itself promises no shape."""

from __future__ import annotations

from reprlib import repr as shown  # at most a few words of a wrong answer, however large it is
from typing import Any

from msgspec import Struct

from daybreak.adapters.plecs.errors import BadAnswer, NoOutput, PlecsError, error_of


class Waveforms(Struct, frozen=True):
    """The result of one simulation: the instants, and for each outport its values at these instants."""

    time: list[float]
    signals: list[list[float]]

    @property
    def final(self) -> list[float]:
        """The last value of each signal."""
        return [signal[-1] for signal in self.signals]


def parse_waveforms(answer: object) -> Waveforms:
    """The answer of `simulate`. An empty one is an error of its own, not a success without data."""
    if not isinstance(answer, dict) or "Time" not in answer or "Values" not in answer:
        if answer in (None, "", {}, []):
            raise _no_output()
        raise BadAnswer(f"not the answer of a simulation, which has Time and Values: {shown(answer)}")
    time = _numbers(answer["Time"], "Time")
    values = answer["Values"]
    if not isinstance(values, list):
        raise BadAnswer(f"Values of a simulation: {shown(values)} is no list")
    if not time or not values:
        raise _no_output()
    return Waveforms(time, _signals(values, len(time)))


def parse_batch(answer: object, count: int) -> list[Waveforms | PlecsError]:
    """The answers of a batch in the order asked: waveforms, or the error of that element alone."""
    if not isinstance(answer, list) or len(answer) != count:
        found = len(answer) if isinstance(answer, list) else "no list"
        raise BadAnswer(f"a batch of {count} simulations was answered with {found} results")
    return [_element(one) for one in answer]


def _element(one: object) -> Waveforms | PlecsError:
    if isinstance(one, str) and one:
        return error_of(one)
    try:
        return parse_waveforms(one)
    except PlecsError as error:
        return error


def _no_output() -> NoOutput:
    return NoOutput(
        "the simulation answered no data: PLECS sends only signals that are connected to outports at the top level of "
        "the model"
    )


def _signals(values: list[Any], instants: int) -> list[list[float]]:
    if not isinstance(values[0], list):
        values = [values]
    rows = [_numbers(row, "Values") for row in values]
    lengths = {len(row) for row in rows}
    if lengths == {instants}:
        return rows
    # The manual has one row per instant, PLECS itself one row per signal.
    if len(rows) == instants and len(lengths) == 1 and lengths != {0}:
        return [list(signal) for signal in zip(*rows, strict=True)]
    raise BadAnswer(f"Values of a simulation: rows of {sorted(lengths)} numbers for {instants} instants")


def _numbers(found: object, what: str) -> list[float]:
    if not isinstance(found, list):
        raise BadAnswer(f"{what} of a simulation: {shown(found)} is no list of numbers")
    for one in found:
        if isinstance(one, bool) or not isinstance(one, int | float):
            raise BadAnswer(f"{what} of a simulation: {shown(one)} is no number")
    return [float(one) for one in found]

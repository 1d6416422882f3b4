"""A synchronous buck converter with its switching: exact between two switching instants, by the matrix exponential."""

from __future__ import annotations

import bisect
import re
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

SUBSTEPS: Final = 5  # points per switching state
MAX_PERIODS: Final = 1_000_000
# As in the initialisation commands of a PLECS model.
_ASSIGNMENT: Final = re.compile(r"^\s*\"?\s*([A-Za-z]\w*)\s*=\s*([-+]?[0-9.]+(?:[eE][-+]?\d+)?)\s*;", re.MULTILINE)

Matrix = list[list[float]]


class ModelFault(Exception):
    """What PLECS would answer to this model and these variables."""


class Circuit(NamedTuple):
    """The variables of the model: volts, henry, farad, ohms, hertz; `RL` is the resistance of the coil."""

    Vi: float = 24.0
    duty: float = 0.5
    Lo: float = 10e-6
    Co: float = 100e-6
    R: float = 1.0
    RL: float = 0.02
    fs: float = 100e3
    TimeSpan: float = 1e-3


def read_model(text: str) -> dict[str, float]:
    """The variables that the initialisation commands of a model file set."""
    return {name: float(number) for name, number in _ASSIGNMENT.findall(text)}


def simulate(defaults: Mapping[str, float], options: Mapping[str, Any], slow: float = 0.0) -> dict[str, Any]:
    """The output voltage and the current of the coil. `slow` is how many seconds the simulation takes at least."""
    solver = options.get("SolverOpts", {})
    limit = float(solver.get("Timeout", 0.0)) or float("inf")
    if options.get("OutputFormat", "Plain") != "Plain":
        raise ModelFault("the stand-in knows the OutputFormat Plain only")
    circuit = _circuit(defaults, options.get("ModelVars", {}), solver)
    time.sleep(min(slow, limit))
    if slow > limit:
        raise ModelFault(f"Simulation timed out after {limit:g} s")
    instants, volts, amperes = _run(circuit)
    wanted = solver.get("OutputTimes")
    if wanted:
        times = [float(one) for one in wanted]
        found = [[_at(instants, signal, one) for one in times] for signal in (volts, amperes)]
        return {"Time": times, "Values": found}
    return {"Time": instants, "Values": [volts, amperes]}


def _circuit(defaults: Mapping[str, float], variables: Mapping[str, Any], solver: Mapping[str, Any]) -> Circuit:
    given: dict[str, Any] = {**defaults, **variables}
    if "duty" not in given and given.get("Vo_ref") is not None:
        given["duty"] = _number("Vo_ref", given["Vo_ref"]) / _number("Vi", given.get("Vi", 24.0))
    for option in ("TimeSpan", "StopTime"):
        if option in solver:
            given["TimeSpan"] = solver[option]
    circuit = Circuit(**{name: _number(name, given[name]) for name in Circuit._fields if name in given})
    for name in ("Lo", "Co", "R", "fs", "TimeSpan"):
        if getattr(circuit, name) <= 0:
            raise ModelFault(f"buck/{name}: {getattr(circuit, name):g} must be above 0")
    if not 0 < circuit.duty < 1:
        raise ModelFault(f"buck/PWM: the duty cycle {circuit.duty:g} must lie between 0 and 1")
    if circuit.TimeSpan * circuit.fs > MAX_PERIODS:
        raise ModelFault(f"the stand-in simulates {MAX_PERIODS:,} switching periods at most")
    return circuit


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelFault(f"buck/{name}: {value!r:.40} is no scalar")
    return float(value)


def _run(circuit: Circuit) -> tuple[list[float], list[float], list[float]]:
    period = 1 / circuit.fs
    phases = []
    for seconds, volts in ((circuit.duty * period, circuit.Vi), ((1 - circuit.duty) * period, 0.0)):
        step = seconds / SUBSTEPS
        [[a, b, c], [d, e, f], _] = _exponential(_state_matrix(circuit, volts), step)
        phases.append((step, a, b, c, d, e, f))
    now = amperes = volts = 0.0
    times, outputs, currents = [now], [volts], [amperes]
    for number in range(round(circuit.TimeSpan * circuit.fs)):
        now = number * period  # not summed up, which would drift
        for step, a, b, c, d, e, f in phases:
            for _ in range(SUBSTEPS):
                amperes, volts = a * amperes + b * volts + c, d * amperes + e * volts + f
                now += step
                times.append(now)
                outputs.append(volts)
                currents.append(amperes)
    return times, outputs, currents


def _state_matrix(circuit: Circuit, volts: float) -> Matrix:
    """d/dt of (current, voltage, 1); the last column is what the source drives."""
    return [
        [-circuit.RL / circuit.Lo, -1 / circuit.Lo, volts / circuit.Lo],
        [1 / circuit.Co, -1 / (circuit.R * circuit.Co), 0.0],
        [0.0, 0.0, 0.0],
    ]


def _exponential(matrix: Matrix, seconds: float) -> Matrix:
    """exp(matrix * seconds): the series of a small part of it, squared up."""
    halvings, size = 0, max(sum(abs(cell) for cell in row) for row in matrix) * seconds
    while size > 0.1:
        size, halvings = size / 2, halvings + 1
    part = [[cell * seconds / 2**halvings for cell in row] for row in matrix]
    total = term = [[float(row == column) for column in range(3)] for row in range(3)]
    for n in range(1, 12):
        term = [[cell / n for cell in row] for row in _times(term, part)]
        total = [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(total, term, strict=True)]
    for _ in range(halvings):
        total = _times(total, total)
    return total


def _times(one: Matrix, other: Matrix) -> Matrix:
    columns = list(zip(*other, strict=True))
    return [[sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in one]


def _at(times: list[float], signal: list[float], instant: float) -> float:
    """The value at an instant, between two points by a straight line."""
    after = bisect.bisect_left(times, instant)
    if after == 0:
        return signal[0]
    if after == len(times):
        return signal[-1]
    share = (instant - times[after - 1]) / (times[after] - times[after - 1])
    return signal[after - 1] + share * (signal[after] - signal[after - 1])

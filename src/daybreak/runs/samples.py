"""Random designs: Monte Carlo and Latin hypercube samples of named parameters, repeatable by their seed."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, Protocol, runtime_checkable

from daybreak.core.errors import BadInput

_TINY: Final = 2.0**-54  # a share of 0 has no value in a normal distribution


@runtime_checkable
class Distribution(Protocol):
    """How the values of one parameter are spread."""

    def at(self, share: float) -> Any:
        """The value below which this share of the samples lies; 0 < share < 1."""
        ...


class Uniform:
    """Every value from `low` to `high` is equally likely."""

    def __init__(self, low: float, high: float) -> None:
        _check_numbers("Uniform", low=low, high=high)
        if low >= high:
            raise BadInput(f"Uniform({low!r}, {high!r}): the first number must be below the second")
        self.low, self.high = low, high

    def __repr__(self) -> str:
        return f"Uniform({self.low!r}, {self.high!r})"

    def at(self, share: float) -> float:
        return self.low + (self.high - self.low) * share


class LogUniform:
    """Every order of magnitude from `low` to `high` is equally likely."""

    def __init__(self, low: float, high: float) -> None:
        _check_numbers("LogUniform", low=low, high=high)
        if not 0 < low < high:
            raise BadInput(f"LogUniform({low!r}, {high!r}): both numbers must be above 0, the first below the second")
        self.low, self.high = low, high

    def __repr__(self) -> str:
        return f"LogUniform({self.low!r}, {self.high!r})"

    def at(self, share: float) -> float:
        return math.exp(math.log(self.low) + (math.log(self.high) - math.log(self.low)) * share)


class Normal:
    """A normal distribution with this mean and standard deviation."""

    def __init__(self, mean: float, deviation: float) -> None:
        _check_numbers("Normal", mean=mean, deviation=deviation)
        if deviation <= 0:
            raise BadInput(f"Normal({mean!r}, {deviation!r}): the standard deviation must be above 0")
        self.mean, self.deviation = mean, deviation

    def __repr__(self) -> str:
        return f"Normal({self.mean!r}, {self.deviation!r})"

    def at(self, share: float) -> float:
        from statistics import NormalDist  # noqa: PLC0415 - slow to import, and rarely needed

        return NormalDist(self.mean, self.deviation).inv_cdf(min(max(share, _TINY), 1 - 2**-53))


class Choice:
    """One of these values, each equally likely."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = tuple(values)
        if not self.values:
            raise BadInput("Choice([]) has no values to choose from")

    def __repr__(self) -> str:
        return f"Choice({list(self.values)!r})"

    def at(self, share: float) -> Any:
        return self.values[min(int(share * len(self.values)), len(self.values) - 1)]


class _Samples:
    """A number of points, and the distribution of each parameter. A pair `(low, high)` means `Uniform`."""

    def __init__(self, points: int, parameters: Mapping[str, Distribution | tuple[float, float]]) -> None:
        name = type(self).__name__
        if isinstance(points, bool) or not isinstance(points, int) or points < 1:
            raise BadInput(f"{name}({points!r}, ...): the number of points must be a whole number of 1 or more")
        if not isinstance(parameters, Mapping) or not parameters:
            raise BadInput(f'{name}: name the parameters and their ranges, such as {{"vin": (10, 24)}}')
        self.points = points
        self.parameters = {key: _distribution(name, key, value) for key, value in parameters.items()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.points}, {self.parameters!r})"

    def rows(self, seed: int) -> Iterator[tuple[Any, ...]]:
        """The points, the same for the same seed. A parameter's values do not depend on the other parameters."""
        columns = [self._shares(Random(f"{seed}/{name}")) for name in self.parameters]  # noqa: S311 - not a secret
        spread = list(self.parameters.values())
        for shares in zip(*columns, strict=True):
            yield tuple(parameter.at(share) for parameter, share in zip(spread, shares, strict=True))

    def _shares(self, chance: Random) -> Iterator[float]:
        raise NotImplementedError


class MonteCarlo(_Samples):
    """Independent random points: `MonteCarlo(1000, {"vin": (10, 24), "load": Normal(1, 0.1)})`."""

    def _shares(self, chance: Random) -> Iterator[float]:
        for _ in range(self.points):
            yield chance.random()


class LatinHypercube(_Samples):
    """Random points that cover each parameter evenly: its range is cut into as many parts of equal probability as
    there are points, and each part gets one point. Needs 4 bytes of memory per point and parameter."""

    def _shares(self, chance: Random) -> Iterator[float]:
        strata = array("I", range(self.points))
        chance.shuffle(strata)
        for stratum in strata:
            yield (stratum + chance.random()) / self.points


def _distribution(design: str, name: object, value: object) -> Distribution:
    if not isinstance(name, str):
        raise BadInput(f"{design}: the parameter name {name!r} is not a string")
    if isinstance(value, Distribution):
        return value
    if isinstance(value, (tuple, list)) and len(value) == 2:
        try:
            return Uniform(*value)
        except BadInput as error:
            raise BadInput(f"{design}: parameter {name!r}: {error}") from None
    raise BadInput(
        f"{design}: parameter {name!r} is {value!r}; write a pair (low, high), or Uniform, LogUniform, Normal or "
        "Choice; a value that does not vary belongs into `fixed`"
    )


def _check_numbers(what: str, **numbers: object) -> None:
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
            raise BadInput(f"{what}: {name} is {number!r}; write a finite number")

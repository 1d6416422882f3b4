"""When a run will end, as a range: the P10 and the P90 of many simulated continuations.

Each continuation draws the durations of the jobs that are left from those that were observed, and plays them on the
slots as a worker does: a free slot takes the next job. Three things widen the range as they should:

- few observations: every continuation weights them differently (a Bayesian bootstrap), recent ones more than old ones;
- jobs that still run count as observed too, with a duration of at least so much (Kaplan and Meier's estimate), so a
  straggler is expected before the first one has ended;
- slots that other work took away: the share that the run got so far varies from one stretch of time to the next.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heapreplace
from itertools import accumulate
from typing import Final

from msgspec import Struct

from daybreak.policy.durations import longest_in

MIN_ENDED: Final = 3
CONTINUATIONS: Final = 100
MAX_OBSERVED: Final = 500
MAX_PLAYED: Final = 500

# Chosen with the five workloads of tests/unit/test_eta.py, so that the range holds the true end in 75 to 90 % of looks.
# In these, the end came a little too often before a plain P10.
_LOW: Final = 0.08
_HIGH: Final = 0.9
_UNSEEN: Final = 0.2  # of the continuations have durations far above any that were seen
_UNSEEN_WEIGHT: Final = 1.0  # of observed jobs
_UNSEEN_EXCESS: Final = 2.0  # times the longest
_LONGEST_HALF_LIFE: Final = 0.5  # of the observed jobs
_SHORTEST_HALF_LIFE: Final = 4.0  # jobs
_HALVINGS: Final = 3.0  # between the longest and the shortest half-life
_MIN_HALF: Final = 4
_DIFFERENT: Final = 2.0  # standard errors
_MIN_SHARE: Final = 0.05
_STRETCHES: Final = 12
_SHORTEST: Final = 1e-6


class Ended(Struct, frozen=True):
    """A job that ended: when, and how long it ran; in seconds."""

    at: float
    ran_for: float


class Eta(Struct, frozen=True):
    """The run ends in `earliest` seconds or later with probability 0.9, and within `latest` with probability 0.9."""

    earliest: float
    latest: float


class _Observed(Struct, frozen=True):
    """What is known of the durations, in ascending order: ended ones, and running ones as `at least`."""

    seconds: list[float]
    is_ended: list[bool]
    ages: list[int]
    median: float
    mean: float


class _Sample(Struct, frozen=True):
    """One guess of the distribution: durations in ascending order, the probability of each or a shorter one, and by how
    much a duration exceeds the last of them on average, if it does."""

    seconds: list[float]
    up_to: list[float]
    longest: float
    excess: float


class _Shares(Struct, frozen=True):
    """The share of the slots that the run got in each stretch of `length` seconds."""

    length: float
    values: list[float]


def predict_end(
    ended: Sequence[Ended],
    *,
    now: float,
    running: Sequence[float],
    waiting: int,
    slots: int,
    chance: Callable[[], float],
    ahead: int = 0,
) -> Eta | None:
    """The seconds until the last job of a run ends; None while fewer than three have ended.

    `ended` are the run's jobs that ended, in order of their end, at most the last 500 are used; `running` how long each
    of its running jobs has run so far; `waiting` how many have not started, and `ahead` how many other jobs will start
    before them; `slots` on how many slots its jobs can run at once. `chance` gives numbers from 0 to 1."""
    if len(ended) < MIN_ENDED:
        return None
    if not running and not waiting:
        return Eta(0.0, 0.0)
    ended = ended[-MAX_OBSERVED:]
    slots = max(slots, len(running), 1)
    observed = _observed(ended, now, running)
    shares = _shares(ended, now, running, slots)
    left = waiting + ahead
    ends = []
    for _ in range(CONTINUATIONS):
        sample = _draw_sample(observed, chance)
        usable = _draw_slots(shares, slots, left, observed.mean, chance)
        ends.append(_play(sample, running, left, usable, chance))
    ends.sort()
    return Eta(_quantile(ends, _LOW), _quantile(ends, _HIGH))


def ended_of(classes: Mapping[int, int], now: float, elapsed: float) -> list[Ended]:
    """What `predict_end` needs, from a sketch of the durations by class (`policy.durations`), whose order is unknown:
    their ends are spread evenly over the time `elapsed`. Of many, the last 500 are given, each class with its share."""
    total = sum(classes.values())
    if not total:
        return []
    kept = min(total, MAX_OBSERVED)
    bounds = list(accumulate(classes[at] for at in sorted(classes)))
    ordered = [longest_in(sorted(classes)[bisect_right(bounds, place * total / kept)]) for place in range(kept)]
    # A stride that has no divisor in common with the number mixes short and long durations.
    stride = next(step for step in range(max(kept * 382 // 1000, 1), kept + 2) if math.gcd(step, kept) == 1)
    mixed = [ordered[place * stride % kept] for place in range(kept)]
    return [Ended(now - elapsed * (kept - 1 - place) / total, ran) for place, ran in enumerate(mixed)]


# -- one continuation --------------------------------------------------------------------------------------------------


def _play(sample: _Sample, running: Sequence[float], waiting: int, slots: int, chance: Callable[[], float]) -> float:
    """Play the jobs that are left on the slots; the seconds until the last one ends."""
    busy = [_longer_than(sample, elapsed, chance) - elapsed for elapsed in running]
    # The slots that the run does not use now are used by others, and become free like its own.
    others = [_longer_than(sample, 0.0, chance) * chance() for _ in range(slots - len(busy))]
    free_at = (busy + others)[:slots]
    played = min(waiting, MAX_PLAYED)
    if waiting > played:
        passed = _sum_of(sample, waiting - played, chance) / slots
        free_at = [at + passed for at in free_at]
    heapify(free_at)
    last = max(busy, default=0.0)
    for _ in range(played):
        end = free_at[0] + _longer_than(sample, 0.0, chance)
        heapreplace(free_at, end)
        last = max(last, end)
    return last


def _longer_than(sample: _Sample, elapsed: float, chance: Callable[[], float]) -> float:
    """A duration of more than `elapsed` seconds."""
    first = bisect_right(sample.seconds, elapsed) if elapsed else 0
    shorter = sample.up_to[first - 1] if first else 0.0
    wanted = shorter + (1.0 - shorter) * chance()
    place = bisect_right(sample.up_to, wanted, lo=first)
    if place < len(sample.seconds):
        return _between(sample, place, wanted, elapsed)
    # Longer than any that has ended. The longer such a job has run, the longer it will still run.
    longest = max(elapsed, sample.longest)
    return longest + (sample.excess + longest - sample.longest) * -math.log(1.0 - chance())


def _between(sample: _Sample, place: int, wanted: float, elapsed: float) -> float:
    """The durations between two that were observed are as likely as these."""
    if not place:
        return sample.seconds[0]
    low, high = sample.up_to[place - 1], sample.up_to[place]
    start = max(sample.seconds[place - 1], elapsed)
    return start + (sample.seconds[place] - start) * (wanted - low) / (high - low)


def _sum_of(sample: _Sample, jobs: int, chance: Callable[[], float]) -> float:
    """The sum of many durations, by the central limit theorem."""
    shares = [high - low for low, high in zip([0.0, *sample.up_to], sample.up_to, strict=False)]
    beyond = 1.0 - sample.up_to[-1]
    mean = sum(map(math.prod, zip(sample.seconds, shares, strict=True))) + beyond * (sample.longest + sample.excess)
    square = sum(share * seconds**2 for seconds, share in zip(sample.seconds, shares, strict=True))
    square += beyond * ((sample.longest + sample.excess) ** 2 + sample.excess**2)
    normal = math.sqrt(-2 * math.log(1.0 - chance())) * math.cos(2 * math.pi * chance())
    return max(jobs * mean + normal * math.sqrt(jobs * max(square - mean**2, 0.0)), 0.0)


# -- what is known -----------------------------------------------------------------------------------------------------


def _observed(ended: Sequence[Ended], now: float, running: Sequence[float]) -> _Observed:
    # In order of their start: of the jobs that started in some stretch of time, short and long ones alike are here,
    # ended or running. Of the jobs that ended in it, too many would be long.
    jobs = [(job.at - job.ran_for, max(job.ran_for, _SHORTEST), True) for job in ended]
    jobs += [(now - elapsed, max(elapsed, _SHORTEST), False) for elapsed in running]
    jobs = _steady(sorted(jobs))
    known = sorted((seconds, is_ended, len(jobs) - place) for place, (_, seconds, is_ended) in enumerate(jobs, 1))
    durations = sorted(seconds for _, seconds, is_ended in jobs if is_ended)
    return _Observed(
        [seconds for seconds, _, _ in known],
        [is_ended for _, is_ended, _ in known],
        [age for _, _, age in known],
        durations[len(durations) // 2],
        sum(durations) / len(durations),
    )


def _steady(jobs: list[tuple[float, float, bool]]) -> list[tuple[float, float, bool]]:
    """The latest part of the jobs in which their durations did not change: halves it while its halves differ."""
    while len(jobs) >= 2 * _MIN_HALF:
        half = len(jobs) // 2
        ended = [[seconds for _, seconds, is_ended in part if is_ended] for part in (jobs[:half], jobs[half:])]
        if min(map(len, ended)) < MIN_ENDED or not _differ(*ended):
            break
        jobs = jobs[half:]
    return jobs


def _differ(one: Sequence[float], other: Sequence[float]) -> bool:
    means = [sum(values) / len(values) for values in (one, other)]
    error = sum(
        sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)
        for values, mean in zip((one, other), means, strict=True)
    )
    return abs(means[0] - means[1]) > _DIFFERENT * math.sqrt(error)


def _draw_sample(observed: _Observed, chance: Callable[[], float]) -> _Sample:
    # Nobody knows how fast durations change: some continuations go by the last few jobs, others by all.
    half = max(len(observed.ages) * _LONGEST_HALF_LIFE * 0.5 ** (_HALVINGS * chance()), _SHORTEST_HALF_LIFE)
    weights = [0.5 ** (age / half) * -math.log(1.0 - chance()) for age in observed.ages]
    left = sum(weights)
    longest = observed.seconds[-1]
    excess = max(longest - observed.median, 0.0)
    if chance() < _UNSEEN:
        left += _UNSEEN_WEIGHT * -math.log(1.0 - chance())
        excess = _UNSEEN_EXCESS * longest
    survive, seconds, up_to = 1.0, [], []
    for duration, is_ended, weight in zip(observed.seconds, observed.is_ended, weights, strict=True):
        if is_ended:
            survive *= max(1.0 - weight / left, 0.0) if left > weight else 0.0
            seconds.append(duration)
            up_to.append(1.0 - survive)
        left -= weight
    return _Sample(seconds, up_to, longest, excess)


def _shares(ended: Sequence[Ended], now: float, running: Sequence[float], slots: int) -> _Shares:
    spans = [(job.at - job.ran_for, job.at) for job in ended] + [(now - elapsed, now) for elapsed in running]
    # If older ends were left out, only the time after the first end that is known is known in full.
    first = ended[0].at if len(ended) == MAX_OBSERVED else min(start for start, _ in spans)
    length = (now - first) / _STRETCHES
    if length <= 0:
        return _Shares(0.0, [1.0])
    busy = [0.0] * _STRETCHES
    for start, end in spans:
        for stretch in range(max(int((start - first) / length), 0), _STRETCHES):
            low = first + stretch * length
            if low >= end:
                break
            busy[stretch] += max(min(end, low + length) - max(start, low), 0.0)
    return _Shares(length, [min(max(part / (slots * length), _MIN_SHARE), 1.0) for part in busy])


def _draw_slots(shares: _Shares, slots: int, left: int, mean: float, chance: Callable[[], float]) -> int:
    """On how many slots the run will be able to run, on average over the stretches to come, each like one that was."""
    if not shares.length or not left:
        return slots
    to_come = min(max(round(left * mean / slots / shares.length), 1), _STRETCHES)
    share = sum(shares.values[int(chance() * len(shares.values))] for _ in range(to_come)) / to_come
    return max(int(share * slots + chance()), 1)


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

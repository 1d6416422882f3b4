"""Conversion between gauges (core/resource_gauge.py) and rows of the table `gauge`."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from daybreak.core.model import Gate, ResourceSettings
from daybreak.core.resource_gauge import Gauge, Reservation
from daybreak.core.units import span

MAX_STORED: Final = 1 << 62  # fits a bigint, and is more than any number that a limit is compared with


def gauge_of(
    slots: int | None, every: int | None, burst: int, max_waiting: int | None, probes: int | None, shut_until: int,
    used: int, waiting: int, tat: int, look: int | None, kept_seq: int | None, kept_priority: int, kept_slots: int,
    fence: int, sparing_until: int, credit: int, spare_at: int, taken_at: int,
) -> tuple[Gauge, int]:  # fmt: skip
    """A gauge and its number of waiting jobs, from a row of the statement `load_gauges`."""
    pace = None if every is None else timedelta(microseconds=every)
    kept = None if kept_seq is None else Reservation(kept_seq, kept_priority, kept_slots)
    return Gauge(
        settings=ResourceSettings(slots=slots, every=pace, burst=burst, max_waiting=max_waiting),
        gate=Gate(probes=probes), shut_until=shut_until, used=used, tat=tat, look=look, kept=kept, fence=fence,
        sparing_until=sparing_until, credit=credit, spare_at=spare_at, taken_at=taken_at,
    ), waiting  # fmt: skip


def values_of(gauge: Gauge, waiting: int) -> tuple[int | None, ...]:
    settings = gauge.settings
    return (
        _clamp(settings.slots), _clamp(None if settings.every is None else span(settings.every)),
        _clamp(settings.burst), _clamp(settings.max_waiting), _clamp(gauge.gate.probes),
        _clamp(gauge.shut_until), gauge.used, waiting, _clamp(gauge.tat), _clamp(gauge.look),
        *(gauge.kept or (None, None, None)), gauge.fence, _clamp(gauge.sparing_until), gauge.credit,
        _clamp(gauge.spare_at), gauge.taken_at,
    )  # fmt: skip


def _clamp(number: int | None) -> int | None:
    return None if number is None else max(-MAX_STORED, min(number, MAX_STORED))

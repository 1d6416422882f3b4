"""A buck converter, averaged over a switching period: what the demo's jobs compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

VI: Final = 24.0  # volts in
FS: Final = 100e3  # switching frequency, hertz
L: Final = 10e-6  # henry
C: Final = 100e-6  # farad
RL: Final = 0.02  # ohms of the coil's wire

STEP: Final = 0.1e-6  # seconds; the filter rings at 5 kHz
DURATION: Final = 8e-3  # seconds; the least damped load has settled by then


@dataclass(frozen=True, slots=True)
class Converter:
    """The result of a start-up: the output voltage, its ripple from peak to peak, and its overshoot."""

    vout: float
    ripple: float
    overshoot: float


def simulate(duty: float, load: float) -> Converter:
    """Simulate a start-up at a duty cycle from 0 to 1, with a load in ohms, until the output has settled."""
    if not 0 < duty < 1 or load <= 0:
        raise ValueError(f"duty={duty}, load={load}: the duty cycle lies between 0 and 1, the load is above 0 ohms")
    current, volts, highest = _start(duty, load)
    # The averaged model has no ripple: add the triangular current, smoothed by the capacitor.
    swing = (VI - volts - RL * current) * duty / (L * FS)
    return Converter(vout=volts, ripple=swing / (8 * C * FS), overshoot=highest / volts - 1)


def _start(duty: float, load: float) -> tuple[float, float, float]:
    """Fourth-order Runge-Kutta for L di/dt = duty*VI - v - RL*i and C dv/dt = i - v/load. Written out,
    because most of the time is spent here."""
    h, h2, h6, drive, leak = STEP, STEP / 2, STEP / 6, duty * VI, 1 / load
    i = v = highest = 0.0
    for _ in range(round(DURATION / STEP)):
        di1, dv1 = (drive - v - RL * i) / L, (i - v * leak) / C
        im, vm = i + h2 * di1, v + h2 * dv1
        di2, dv2 = (drive - vm - RL * im) / L, (im - vm * leak) / C
        im, vm = i + h2 * di2, v + h2 * dv2
        di3, dv3 = (drive - vm - RL * im) / L, (im - vm * leak) / C
        im, vm = i + h * di3, v + h * dv3
        di4, dv4 = (drive - vm - RL * im) / L, (im - vm * leak) / C
        i += h6 * (di1 + 2 * (di2 + di3) + di4)
        v += h6 * (dv1 + 2 * (dv2 + dv3) + dv4)
        highest = max(highest, v)
    return i, v, highest

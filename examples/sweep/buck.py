"""A buck converter, averaged over a switching period. It knows nothing of Daybreak."""

VI, FS, L, C, RL = 24.0, 100e3, 10e-6, 100e-6, 0.02


def start_up(duty: float, load: float, step: float = 0.5e-6, until: float = 8e-3) -> dict[str, float]:
    """Simulate the start-up at a duty cycle and a load in ohms: the final voltage, the ripple and the overshoot."""
    if not 0 < duty < 1 or load <= 0:
        raise ValueError(f"duty={duty}, load={load}: the duty cycle lies between 0 and 1, the load above 0 ohms")

    def slope(i: float, v: float) -> tuple[float, float]:
        return (duty * VI - v - RL * i) / L, (i - v / load) / C

    i = v = highest = 0.0
    for _ in range(round(until / step)):  # Runge-Kutta, fourth order
        di1, dv1 = slope(i, v)
        di2, dv2 = slope(i + step / 2 * di1, v + step / 2 * dv1)
        di3, dv3 = slope(i + step / 2 * di2, v + step / 2 * dv2)
        di4, dv4 = slope(i + step * di3, v + step * dv3)
        i += step / 6 * (di1 + 2 * di2 + 2 * di3 + di4)
        v += step / 6 * (dv1 + 2 * dv2 + 2 * dv3 + dv4)
        highest = max(highest, v)
    swing = (VI - v - RL * i) * duty / (L * FS)
    return {"vout": v, "ripple": swing / (8 * C * FS), "overshoot": highest / v - 1}

"""Deterministic simulation: the real client, services and store on a virtual clock, with everything going wrong.

    python -m daybreak.testing.simulation --seeds 20000

loop · world · process · network · wire    a machine room that one seed controls
worker · crews · actors · faults           who works in it, and what happens to them
history · checker                          what happened, and whether it was right
"""

from daybreak.testing.simulation.checker import Violation
from daybreak.testing.simulation.simulate import Report, simulate
from daybreak.testing.simulation.site import Parts

__all__ = ["Parts", "Report", "Violation", "simulate"]

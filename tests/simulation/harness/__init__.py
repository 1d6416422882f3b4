"""Deterministic simulation: the real client, worker, services and store in virtual time, with everything going wrong.

    python -m harness --seeds 20000

loop · world · process · network · wire    a machine room that one seed controls
worker · child · actors · faults           who works in it, and what happens to them
history · checker                          what happened, and whether it was right
"""

from harness.checker import Violation
from harness.simulate import Report, simulate
from harness.site import Parts

__all__ = ["Parts", "Report", "Violation", "simulate"]

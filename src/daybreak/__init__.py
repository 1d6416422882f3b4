"""Daybreak: a priority job orchestrator that runs work unattended."""

from daybreak.client import Client
from daybreak.errors import DaybreakError
from daybreak.model import Job, JobSpec, Lease, Options, QueueSettings, Retry, State
from daybreak.units import Priority

__all__ = [
    "Client",
    "DaybreakError",
    "Job",
    "JobSpec",
    "Lease",
    "Options",
    "Priority",
    "QueueSettings",
    "Retry",
    "State",
]
__version__ = "0.1.0"

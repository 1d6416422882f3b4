"""Daybreak: a priority job orchestrator that runs work unattended."""

from daybreak.app import Daybreak
from daybreak.client import Client
from daybreak.context import Context, context
from daybreak.errors import (
    BadInput,
    DaybreakError,
    JobCancelled,
    JobFailed,
    KeyConflict,
    KeySpent,
    LeaseLost,
    LockCycle,
    LockTimeout,
    NotAllowed,
    Permanent,
    QueueFull,
    ResultTimeout,
    StoreError,
    StoreUnavailable,
    Suspend,
    TooLate,
    Transient,
    UniqueConflict,
)
from daybreak.events import Event
from daybreak.jobinfo import JobInfo
from daybreak.jobs import JobHandle
from daybreak.model import (
    Adaptive,
    Breaker,
    Job,
    JobSpec,
    Lease,
    Options,
    QueueSettings,
    Reason,
    ResourceSettings,
    Retry,
    State,
)
from daybreak.outcome import JobOutcome
from daybreak.policy.resources import Resource
from daybreak.rules import Admission
from daybreak.submitting import Task
from daybreak.units import Priority
from daybreak.values import Secret

__all__ = [
    "Adaptive",
    "Admission",
    "BadInput",
    "Breaker",
    "Client",
    "Context",
    "Daybreak",
    "DaybreakError",
    "Event",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobHandle",
    "JobInfo",
    "JobOutcome",
    "JobSpec",
    "KeyConflict",
    "KeySpent",
    "Lease",
    "LeaseLost",
    "LockCycle",
    "LockTimeout",
    "NotAllowed",
    "Options",
    "Permanent",
    "Priority",
    "QueueFull",
    "QueueSettings",
    "Reason",
    "Resource",
    "ResourceSettings",
    "ResultTimeout",
    "Retry",
    "Secret",
    "State",
    "StoreError",
    "StoreUnavailable",
    "Suspend",
    "Task",
    "TooLate",
    "Transient",
    "UniqueConflict",
    "context",
]
__version__ = "0.1.0"

"""Daybreak: a priority job orchestrator that runs work unattended."""

from daybreak.api.app import Daybreak
from daybreak.api.batch_task import BatchTask
from daybreak.api.job_handle import JobHandle
from daybreak.api.job_info import JobInfo
from daybreak.api.job_outcome import JobOutcome
from daybreak.api.task import Task
from daybreak.client.client import Client
from daybreak.core.errors import (
    AttemptOver,
    BadInput,
    DaybreakError,
    JobCancelled,
    JobFailed,
    KeyConflict,
    KeySpent,
    LeaseLost,
    LockCycle,
    LockShed,
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
from daybreak.core.events import Event
from daybreak.core.model import (
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
from daybreak.core.units import Priority
from daybreak.policy.resources import Resource
from daybreak.runs.samples import Choice, LatinHypercube, LogUniform, MonteCarlo, Normal, Uniform
from daybreak.sagas.saga import Saga
from daybreak.tasks.admission_rules import Admission
from daybreak.tasks.cache import Cache
from daybreak.tasks.context import Context, context
from daybreak.values import File, Secret

__all__ = [
    "Adaptive",
    "Admission",
    "AttemptOver",
    "BadInput",
    "BatchTask",
    "Breaker",
    "Cache",
    "Choice",
    "Client",
    "Context",
    "Daybreak",
    "DaybreakError",
    "Event",
    "File",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobHandle",
    "JobInfo",
    "JobOutcome",
    "JobSpec",
    "KeyConflict",
    "KeySpent",
    "LatinHypercube",
    "Lease",
    "LeaseLost",
    "LockCycle",
    "LockShed",
    "LockTimeout",
    "LogUniform",
    "MonteCarlo",
    "Normal",
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
    "Saga",
    "Secret",
    "State",
    "StoreError",
    "StoreUnavailable",
    "Suspend",
    "Task",
    "TooLate",
    "Transient",
    "Uniform",
    "UniqueConflict",
    "context",
]
__version__ = "0.1.0"

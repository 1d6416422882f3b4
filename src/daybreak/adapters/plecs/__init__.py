"""PLECS, the simulator for power electronics: an XML-RPC client for tasks.

client        the calls: load, simulate, simulate_batch, and the resource that makes jobs take turns
model_copies  models under names that have the digest of their content
options       model variables and solver options, as PLECS takes them
results       what a simulation answers
errors        which errors are transient, and which are permanent
xml_rpc       one call: time limits, size limits, no repetition
stand_in      a server that speaks the same protocol, for tests and documents; it is not PLECS"""

from daybreak.adapters.plecs.client import PLECS_RETRY, Plecs, plecs_cache, plecs_resource
from daybreak.adapters.plecs.errors import (
    AnswerTooLarge,
    BadAnswer,
    ModelError,
    ModelNotLoaded,
    NoOutput,
    PlecsBusy,
    PlecsError,
    PlecsTimeout,
    PlecsUnavailable,
)
from daybreak.adapters.plecs.model_copies import copy_by_content
from daybreak.adapters.plecs.results import Waveforms

__all__ = [
    "PLECS_RETRY",
    "AnswerTooLarge",
    "BadAnswer",
    "ModelError",
    "ModelNotLoaded",
    "NoOutput",
    "Plecs",
    "PlecsBusy",
    "PlecsError",
    "PlecsTimeout",
    "PlecsUnavailable",
    "Waveforms",
    "copy_by_content",
    "plecs_cache",
    "plecs_resource",
]

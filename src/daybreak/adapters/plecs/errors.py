"""What can go wrong with PLECS.

PlecsError
├── Transient: a retry may help
│   ├── PlecsUnavailable   nothing answers at the address, or the connection was lost
│   ├── PlecsTimeout       no complete answer within the time limit, or the run exceeded its own
│   ├── PlecsBusy          another simulation is running; PLECS runs one command at a time
│   ├── ModelNotLoaded     PLECS does not know the model; one that was restarted has forgotten it
│   └── BadAnswer          the answer is damaged, or not what was asked for
└── Permanent: the same call will fail again
    ├── ModelError         PLECS says that the model, its variables or its options are wrong
    ├── NoOutput           the simulation ran, but the model has no outports at its top level
    └── AnswerTooLarge     the answer is over the size limit
"""

from __future__ import annotations

import re
from typing import Final

from daybreak.core.errors import DaybreakError, Permanent, Transient

# PLECS has one fault code for all errors, so its text decides.
_BUSY: Final = re.compile(
    r"\bbusy\b|\balready (running|in progress|being simulated)|\banother (simulation|analysis|command)\b"
    r"|\bin progress\b|\bcurrently (running|simulating)",
    re.IGNORECASE,
)
_TIMED_OUT: Final = re.compile(r"\btime-?out\b|\btimed out\b", re.IGNORECASE)
_NOT_LOADED: Final = re.compile(r"\bnot (loaded|open)\b|\bno (open |loaded )?model named\b", re.IGNORECASE)


class PlecsError(DaybreakError):
    """Any error of a call to PLECS."""


class PlecsUnavailable(Transient, PlecsError):
    """Nothing answers at the address, or the connection was lost before the answer was complete."""


class PlecsTimeout(Transient, PlecsError):
    """There was no complete answer within the time limit, or the run exceeded its own."""


class PlecsBusy(Transient, PlecsError):
    """Another simulation is running. PLECS does not queue commands, it refuses them."""


class ModelNotLoaded(Transient, PlecsError):
    """PLECS does not know the model. It is transient, because a retried job loads it again."""


class BadAnswer(Transient, PlecsError):
    """The answer is damaged, or it is not the answer to this call."""


class ModelError(Permanent, PlecsError):
    """PLECS refuses the model, its variables or its options."""


class NoOutput(Permanent, PlecsError):
    """The simulation ran, but there is nothing to read: the model has no outports at its top level."""


class AnswerTooLarge(Permanent, PlecsError):
    """The answer is over the size limit."""


def error_of(text: str) -> PlecsError:
    """The error that a text of PLECS stands for: of a fault, or of one element of a batch."""
    if _BUSY.search(text):
        return PlecsBusy(text)
    if _NOT_LOADED.search(text):
        return ModelNotLoaded(f"{text}; load the model first: a PLECS that was restarted has forgotten it")
    if _TIMED_OUT.search(text):
        return PlecsTimeout(text)
    return ModelError(text)

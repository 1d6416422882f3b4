"""Why a job does not run: the cause, what is in the way, the command that removes it, and when it should start.

`situation.py` reads everything that can hold a job back, `causes.py` decides which of it does, and `summary.py` counts
the causes of all waiting jobs. The Python API, the command line and the server all use these."""

from daybreak.api.why.causes import Cause, SagaPart, Why, explain
from daybreak.api.why.situation import read_situation
from daybreak.api.why.summary import CauseCount, summarise

__all__ = ["Cause", "CauseCount", "SagaPart", "Why", "explain", "read_situation", "summarise"]

"""Every error Daybreak raises on purpose.

DaybreakError
├── BadInput (ValueError)          what was asked cannot be right; says the right spelling
│   ├── TooLarge                   over a stated limit of size or depth
│   ├── NotEncodable               a value that would not come back equal
│   ├── BadArguments               arguments that do not fit the task's function; names the parameter
│   ├── UnknownTask                no task of this name; says what comes closest
│   ├── TargetNotFound             no app where the worker was told to look
│   ├── NotImportable              a task that a child process could not find again
│   └── Unsupported                right, but not on this store
├── Refused                        right, but not now
│   ├── QueueFull                  the queue is at its capacity
│   ├── KeyConflict                idempotency key in use for other content
│   ├── KeySpent                   a job ran under this idempotency key and was purged
│   ├── UniqueConflict             an unfinished job holds this unique name
│   ├── WrongState                 the job's state does not allow it
│   ├── NotAllowed                 raised by an app's own rules: this job is not let in
│   ├── LockTimeout (TimeoutError) the lock was not free within the time one would wait
│   └── LockCycle                  those who wait for one another would wait for ever; the youngest is refused
├── JobNotFound (LookupError)
├── JobFailed                      raised by result(): the job failed, with its reason and remote traceback
├── JobCancelled                   raised by result()
├── ResultTimeout (TimeoutError)   raised by result(): not final yet; the job goes on
├── TooLate (TimeoutError)         raised by limit_time(): it took longer than it may
├── CalledDuringImport             work was asked for while a worker imports this module
├── LeaseLost                      someone else holds the job now; drop the result, go on
├── RecordChanged                  compare-and-set lost the race; read again
├── CursorExpired                  events older than what is kept
└── StoreError
    ├── StoreUnavailable           cannot be reached now; asking again may help
    │   └── OutcomeUnknown         the commit may or may not have happened; repeat is safe
    ├── StoreFull                  no space left; nothing of this call was written
    ├── StoreReadOnly
    ├── StoreCorrupt
    ├── StoreTooNew                written by a newer Daybreak
    └── StoreUnsuitable            a library or file system that cannot keep the promises, or a server that answers
                                   and refuses this user, password or database

Raised by tasks to say what an error means:
Permanent · Transient · Suspend
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any


class DaybreakError(Exception):
    """Root of everything Daybreak raises on purpose. Each can be copied, and sent to another process."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__ == __name__:
            cls.__module__ = "daybreak.errors"  # where users import it from, and what tracebacks show

    def __reduce__(self) -> tuple[Any, ...]:
        # Not by calling the class: what it was made of is not what its message says.
        made = super().__reduce__()
        assert isinstance(made, tuple)
        return _restored, (type(self), made[1]), *made[2:]


def _restored(kind: type[DaybreakError], args: tuple[Any, ...]) -> DaybreakError:
    error = kind.__new__(kind, *args)
    # What Python itself keeps of it, as the number of an OSError, is set by the first base that is Python's.
    own = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    own.__init__(error, *args)  # type: ignore[misc]
    return error


class BadInput(DaybreakError, ValueError):
    pass


class TooLarge(BadInput):
    pass


class NotEncodable(BadInput):
    pass


class BadArguments(BadInput):
    pass


class UnknownTask(BadInput):
    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        from difflib import get_close_matches  # noqa: PLC0415 - takes longer to import than this whole module

        known = sorted(known)
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known[:20]) or 'none'}"
        super().__init__(f"no task named {name!r}; {hint}")
        self.name = name


class TargetNotFound(BadInput):
    pass


class NotImportable(BadInput):
    pass


class Unsupported(BadInput):
    pass


class Refused(DaybreakError):
    pass


class QueueFull(Refused):
    def __init__(
        self,
        queue: str,
        retry_after: timedelta = timedelta(seconds=5),
        note: str = "",
        resources: Iterable[str] = (),
    ) -> None:
        super().__init__(
            f"{note + ': ' if note else ''}queue {queue!r} is full: "
            f"it holds as many unfinished jobs as its capacity allows{_or_waiting(resources)}; "
            f"try again in {retry_after.total_seconds():g} s, or raise the limit"
        )
        self.queue = queue
        self.retry_after = retry_after


def _or_waiting(resources: Iterable[str]) -> str:
    names = ", ".join(resources)
    return f", or as many jobs wait for {names} as its max_waiting allows" if names else ""


class KeyConflict(Refused):
    """`job` is the job that has the key; empty where two rows of one call have it."""

    def __init__(self, key: str, job: str, note: str = "") -> None:
        if job:
            told = f"idempotency key {key!r} belongs to job {job}, which was submitted with other content"
            note = f"{note}: {told}" if note else told
        super().__init__(f"{note}; use a new key for new content")
        self.key = key
        self.job = job


class KeySpent(Refused):
    def __init__(self, key: str, job: str, note: str = "") -> None:
        super().__init__(
            f"{note + ': ' if note else ''}job {job} ran under idempotency key {key!r} and has left the store since: "
            "its result is gone. To run it again use a new key, or wait: a key is free 24 hours after its submit. "
            "To keep results longer, submit with keep=..."
        )
        self.key = key
        self.job = job


class UniqueConflict(Refused):
    def __init__(self, unique: str, job: str) -> None:
        super().__init__(f"job {job} is unfinished and holds the unique name {unique!r}")
        self.unique = unique
        self.job = job


class WrongState(Refused):
    def __init__(self, job: str, state: str, wanted: str) -> None:
        super().__init__(f"job {job} is {state}: {wanted}")
        self.job = job
        self.state = state


class NotAllowed(Refused):
    """For admission rules to raise: `raise NotAllowed("emergency is for people on call")`."""


class LockTimeout(Refused, TimeoutError):
    def __init__(self, names: str, waited: str, holder: str = "") -> None:
        held = f"; it is held by {holder}" if holder else ""
        super().__init__(f"lock {names} was not free within {waited}{held}; wait longer with wait=..., or try later")


class LockCycle(Refused):
    def __init__(self, story: str) -> None:
        super().__init__(
            f"waiting for this lock would never end: {story}; take nested locks in one call, app.lock(a, b), "
            "or everywhere in the same order"
        )


class TooLate(DaybreakError, TimeoutError):
    def __init__(self, kind: str, resource: str, seconds: float, base: float) -> None:
        super().__init__(
            f"{kind} of {resource}: not done within its limit of {seconds:.3g} s (adaptive, base {base:.3g} s)"
        )
        self.seconds = seconds


class JobNotFound(DaybreakError, LookupError):
    def __init__(self, job: str) -> None:
        super().__init__(f"no job {job}: never submitted here, or removed since")
        self.job = job


class JobFailed(DaybreakError):
    """`reason` is why (error, exhausted, timeout, expired, shed, lost, upstream), `traceback` is where it happened."""

    def __init__(self, job: str, task: str, reason: str, error: str, attempt: int, traceback: str = "") -> None:
        told = f"job {job} ({task}) failed ({reason}, attempt {attempt})" + (f": {error}" if error else "")
        super().__init__(f"{told}\n\n{traceback.rstrip()}" if traceback else told)
        self.job = job
        self.task = task
        self.reason = reason
        self.error = error
        self.attempt = attempt
        self.traceback = traceback


class JobCancelled(DaybreakError):
    def __init__(self, job: str, task: str) -> None:
        super().__init__(f"job {job} ({task}) was cancelled")
        self.job = job


class ResultTimeout(DaybreakError, TimeoutError):
    def __init__(self, job: str, state: str, waited_for: timedelta) -> None:
        super().__init__(f"job {job} is {state} after {waited_for.total_seconds():g} s; it goes on, ask again later")
        self.job = job
        self.state = state


class CalledDuringImport(DaybreakError):
    def __init__(self, what: str, where: str) -> None:
        super().__init__(
            f"{what} was called at {where} while a worker imports this module; every child would do it again. "
            'Put it under: if __name__ == "__main__":'
        )


class LeaseLost(DaybreakError):
    def __init__(self, job: str, fence: int) -> None:
        super().__init__(f"job {job} is no longer held under fence {fence}: its result is dropped")
        self.job = job
        self.fence = fence


class RecordChanged(DaybreakError):
    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name!r} was changed by someone else meanwhile: read it again and decide anew")


class CursorExpired(DaybreakError):
    def __init__(self, cursor: str) -> None:
        super().__init__(f"events after {cursor!r} were purged: start again from the oldest (cursor None)")


class StoreError(DaybreakError):
    pass


class StoreUnavailable(StoreError):
    pass


class OutcomeUnknown(StoreUnavailable):
    pass


class StoreFull(StoreError):
    pass


class StoreReadOnly(StoreError):
    pass


class StoreCorrupt(StoreError):
    pass


class StoreTooNew(StoreError):
    pass


class StoreUnsuitable(StoreError):
    pass


class Permanent(DaybreakError):
    """Raised by a task: trying again cannot help."""


class Transient(DaybreakError):
    """Raised by a task: trying again may help, not before `retry_after` has passed, a timedelta or text as "90s"."""

    def __init__(self, *args: object, retry_after: timedelta | str | None = None) -> None:
        super().__init__(*args)
        if not isinstance(retry_after, timedelta | str | None):
            raise BadInput(f"{self!r}, retry_after: {retry_after!r} has no unit; write '90s', '10m' or a timedelta")
        self.retry_after = retry_after


class Suspend(DaybreakError):
    """Raised by a task: hold this job until someone resumes it."""

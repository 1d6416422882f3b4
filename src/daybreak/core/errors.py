"""Every error Daybreak raises on purpose.

DaybreakError
├── BadInput (ValueError)          the call is wrong and can never succeed; the message shows the right spelling
│   ├── TooLarge                   over a stated limit of size or depth
│   ├── NotEncodable               a value that would not be equal after encoding and decoding
│   ├── BadFile                    a file that cannot be read, or that changed while it was read
│   ├── BadArguments               arguments that do not fit the task's function; the message names the parameter
│   ├── UnknownTask                no task has this name; the message suggests the closest one
│   ├── TargetNotFound             the module that a worker was given has no app
│   ├── NotImportable              a task that a child process cannot import
│   └── Unsupported                the call is right, but this store does not support it
├── Refused                        the call is right, but cannot be accepted now
│   ├── QueueFull                  the queue is at its capacity
│   ├── KeyConflict                the idempotency key belongs to a job with other content
│   ├── KeySpent                   a job ran under this idempotency key and was purged
│   ├── UniqueConflict             an unfinished job holds this unique name
│   ├── WrongState                 the state of the job does not allow the change
│   ├── NotAllowed                 raised by an app's own rules: the job is not admitted
│   ├── RunChanged                 a sweep was submitted again with other points or other code
│   ├── RunBusy                    the run has unfinished jobs, so it is not deleted
│   ├── LockTimeout (TimeoutError) the lock was not free within the wait limit
│   │   └── LockShed               a more urgent request pushed this one out of a full queue
│   └── LockCycle                  a deadlock: the lock requests wait for one another; the youngest is refused
├── JobNotFound (LookupError)      no job has this id
├── RunNotFound (LookupError)      no run has this name; the message suggests the closest one
├── ScheduleNotFound (LookupError) no schedule has this name; the message suggests the closest one
├── SagaNotFound (LookupError)     no saga has this id; the message suggests the closest one
├── SagaFailed                     raised by result() of a saga: it was compensated, or is stuck
├── SagaTimeout (TimeoutError)     raised by wait() of a saga: it has not ended yet, and continues
├── RunTimeout (TimeoutError)      raised by run.wait(): the run has not ended yet, and continues
├── JobFailed                      raised by result(): the job failed, with its reason and remote traceback
├── JobCancelled                   raised by result(): the job was cancelled
├── ResultTimeout (TimeoutError)   raised by result(): the job is not final yet, and continues
├── TooLate (TimeoutError)         raised by limit_time(): the block ran longer than its limit
├── CalledDuringImport             a job or a worker was started while a worker imports the module
├── LeaseLost                      another worker holds the job now; drop the result and go on
│   └── AttemptOver                raised by finish() and extend(): the attempt with this fence has ended otherwise
├── RecordChanged                  a compare-and-set lost the race; read the record again
├── CursorExpired                  the events after this cursor were purged
└── StoreError
    ├── StoreUnavailable           the store cannot be reached now; a retry may help
    │   └── OutcomeUnknown         the commit may or may not have happened; repeating the call is safe
    ├── StoreFull                  no space left; nothing of this call was written
    ├── SpoolFull                  the offline spool takes no more jobs
    ├── StoreReadOnly              the store does not accept writes
    ├── StoreCorrupt               the stored data is damaged
    ├── StoreTooNew                the store was written by a newer version of Daybreak
    └── StoreUnsuitable            a library or file system that cannot keep the promises, or a server that refuses
                                   this user, password or database

Raised by tasks to classify an error:
Permanent · Transient · Suspend
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any


class DaybreakError(Exception):
    """The base class of all errors that Daybreak raises on purpose. Every one can be copied and pickled."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__ == __name__:
            cls.__module__ = "daybreak.errors"  # where users import it from; tracebacks show this name

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickling must not call __init__: its parameters differ from `args`, which hold the finished message.
        reduced = super().__reduce__()
        assert isinstance(reduced, tuple)
        return _restore, (type(self), reduced[1]), *reduced[2:]


def _restore(kind: type[DaybreakError], args: tuple[Any, ...]) -> DaybreakError:
    error = kind.__new__(kind, *args)
    # The first built-in base sets what Python itself keeps, such as the errno of an OSError.
    builtin = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    builtin.__init__(error, *args)  # type: ignore[misc]
    return error


class BadInput(DaybreakError, ValueError):
    """The call is wrong and can never succeed. The message shows the right spelling."""


class TooLarge(BadInput):
    """A value is over a stated limit of size or depth."""


class NotEncodable(BadInput):
    """A value would not be equal after it was encoded and decoded."""


class BadFile(BadInput):
    """A file cannot be read, is not a regular file, or was changed while it was read."""


class BadArguments(BadInput):
    """Arguments do not fit the task's function. The message names the parameter."""


class UnknownTask(BadInput):
    """No task has this name."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        from difflib import get_close_matches  # noqa: PLC0415 - takes longer to import than this whole module

        known = sorted(known)
        close = get_close_matches(name, known, n=1)
        if close:
            hint = f"did you mean {close[0]!r}?"
        elif known:
            hint = f"the tasks are {', '.join(known[:20])}"
        else:
            hint = "no task is registered"
        super().__init__(f"no task named {name!r}; {hint}")
        self.name = name


class TargetNotFound(BadInput):
    """The module or file that a worker was given has no app."""


class NotImportable(BadInput):
    """A child process cannot import the task's function."""


class Unsupported(BadInput):
    """The call is right, but this store or this version does not support it."""


class Refused(DaybreakError):
    """The call is right, but cannot be accepted now."""


class QueueFull(Refused):
    """The queue is at its capacity, or one of the job's resources at its `max_waiting`. Try again `retry_after`."""

    def __init__(
        self,
        queue: str,
        retry_after: timedelta = timedelta(seconds=5),
        note: str = "",
        resources: Iterable[str] = (),
    ) -> None:
        super().__init__(
            f"{note + ': ' if note else ''}queue {queue!r} is full: "
            f"it has as many unfinished jobs as its capacity allows{_or_waiting(resources)}; "
            f"try again in {retry_after.total_seconds():g} s, or raise the limit"
        )
        self.queue = queue
        self.retry_after = retry_after


def _or_waiting(resources: Iterable[str]) -> str:
    names = ", ".join(resources)
    return f", or as many jobs wait for {names} as its max_waiting allows" if names else ""


class KeyConflict(Refused):
    """The idempotency key belongs to another job, `job`. It is empty if two rows of one call have the same key, and if
    the key is the id of a saga. `advice` says what to do instead."""

    def __init__(self, key: str, job: str, note: str = "", *, advice: str = "use a new key for new content") -> None:
        message = note
        if job:
            message = f"idempotency key {key!r} belongs to job {job}, which was submitted with other content"
            if note:
                message = f"{note}: {message}"
        super().__init__(f"{message}; {advice}")
        self.key = key
        self.job = job


class KeySpent(Refused):
    """A job with the same content ran under this idempotency key and was purged."""

    def __init__(self, key: str, job: str, note: str = "") -> None:
        super().__init__(
            f"{note + ': ' if note else ''}job {job} ran under idempotency key {key!r} and was purged from the store: "
            "its result is gone. To run it again, use a new key, or wait: a key is free 24 hours after it was "
            "submitted. To keep results longer, submit with keep=..."
        )
        self.key = key
        self.job = job


class UniqueConflict(Refused):
    """An unfinished job, `job`, holds this unique name."""

    def __init__(self, unique: str, job: str) -> None:
        super().__init__(
            f"job {job} is unfinished and holds the unique name {unique!r}; "
            "wait for it, cancel it, or submit with on_conflict='return' or 'replace'"
        )
        self.unique = unique
        self.job = job


class WrongState(Refused):
    """The state of the job does not allow the change."""

    def __init__(self, job: str, state: str, wanted: str) -> None:
        super().__init__(f"job {job} is {state}: {wanted}")
        self.job = job
        self.state = state


class NotAllowed(Refused):
    """For admission rules to raise: `raise NotAllowed("emergency is for people on call")`."""


class LockTimeout(Refused, TimeoutError):
    """The lock was not free within the wait limit."""

    def __init__(self, names: str, waited: str, holder: str = "") -> None:
        held = f"; it is held by {holder}" if holder else ""
        super().__init__(f"lock {names} was not free within {waited}{held}; wait longer with wait=..., or try later")


class LockShed(LockTimeout):
    """A more urgent request took the place of this one in a full queue. `note` is that of its job, and names the other
    one."""

    def __init__(self, names: str, note: str) -> None:
        Refused.__init__(
            self,
            f"lock {names}: this request was {note}, a more urgent one, because the queue is full; "
            "try later, or with a more urgent priority",
        )


class LockCycle(Refused):
    """A deadlock: this request for a lock waits for itself, through the locks named in `cycle`."""

    def __init__(self, cycle: str) -> None:
        super().__init__(
            f"deadlock: waiting for this lock would never end: {cycle}; take nested locks in one call, "
            "app.lock(a, b), or everywhere in the same order"
        )


class TooLate(DaybreakError, TimeoutError):
    """A block under `limit_time` ran longer than its limit, `seconds`."""

    def __init__(self, kind: str, resource: str, seconds: float, base: float, *, adaptive: bool = True) -> None:
        source = f"adaptive, base {base:.3g} s" if adaptive else "written"
        super().__init__(f"{kind} of {resource}: not finished within its limit of {seconds:.3g} s ({source})")
        self.seconds = seconds


class JobNotFound(DaybreakError, LookupError):
    """No job in the store has this id."""

    def __init__(self, job: str) -> None:
        super().__init__(f"no job {job}: it was never submitted to this store, or it was removed")
        self.job = job


class RunNotFound(DaybreakError, LookupError):
    """No run in the store has this name."""

    def __init__(self, run: str, known: Iterable[str] = ()) -> None:
        from difflib import get_close_matches  # noqa: PLC0415 - slow to import, and rarely needed

        names = list(known)
        close = get_close_matches(run, names, n=1)
        if close:
            hint = f"did you mean {close[0]!r}?"
        elif names:
            hint = f"the latest runs are {', '.join(map(repr, names[:5]))}"
        else:
            hint = "this store has no runs"
        super().__init__(f"no run named {run!r}; {hint}")
        self.run = run


class ScheduleNotFound(DaybreakError, LookupError):
    """No schedule in the store has this name."""

    def __init__(self, schedule: str, known: Iterable[str] = ()) -> None:
        from difflib import get_close_matches  # noqa: PLC0415 - slow to import, and rarely needed

        names = list(known)
        close = get_close_matches(schedule, names, n=1)
        if close:
            hint = f"did you mean {close[0]!r}?"
        elif names:
            hint = f"there are {', '.join(map(repr, names[:5]))}"
        else:
            hint = "this store has no schedules: a worker writes those that its code declares when it starts"
        super().__init__(f"no schedule named {schedule!r}; {hint}")
        self.schedule = schedule


class SagaNotFound(DaybreakError, LookupError):
    """No saga in the store has this id."""

    def __init__(self, saga: str, known: Iterable[str] = ()) -> None:
        from difflib import get_close_matches  # noqa: PLC0415 - slow to import, and rarely needed

        close = get_close_matches(saga, list(known), n=1)
        hint = f"did you mean {close[0]!r}?" if close else "it was never started here, or ended long ago"
        super().__init__(f"no saga with id {saga!r}; {hint}")
        self.saga = saga


class SagaFailed(DaybreakError):
    """The saga was compensated, or is stuck: `state` says which. The message names the command that continues it."""

    def __init__(self, saga: str, name: str, state: str, error: str) -> None:
        super().__init__(f"saga {saga} ({name}) is {state}: {error}")
        self.saga = saga
        self.name = name
        self.state = state
        self.error = error


class SagaTimeout(DaybreakError, TimeoutError):
    """The saga had not ended within the time that `wait()` waited. The saga continues."""

    def __init__(self, saga: str, state: str, waited_for: timedelta) -> None:
        super().__init__(
            f"saga {saga} is still {state} after {waited_for.total_seconds():g} s; it continues, wait again later"
        )
        self.saga = saga
        self.state = state


class RunChanged(Refused):
    """A sweep was submitted again with other points or other code. `changes` says in words what differs."""

    def __init__(self, run: str, changes: Sequence[str]) -> None:
        listed = "\n".join(f"  {change}" for change in changes)
        super().__init__(
            f"run {run!r} is not the same any more:\n{listed}\n"
            "Nothing was submitted, because old and new results would be mixed. To continue the run and keep the "
            "results of the points that both have, pass accept_changes=True; to run every point anew, pass fresh=True"
        )
        self.run = run
        self.changes = list(changes)


class RunBusy(Refused):
    """The run has jobs that have not ended, so it cannot be deleted."""

    def __init__(self, run: str, running: int, waiting: int) -> None:
        super().__init__(
            f"run {run!r} has {running} running and {waiting} waiting jobs: cancel it first, or delete it with "
            "force=True, which cancels them"
        )
        self.run = run


class RunTimeout(DaybreakError, TimeoutError):
    """The run had not ended within the time that `wait()` waited. The run continues."""

    def __init__(self, run: str, unfinished: int, waited_for: timedelta) -> None:
        super().__init__(
            f"run {run!r} has {unfinished} unfinished jobs after {waited_for.total_seconds():g} s; the run continues, "
            "wait again later"
        )
        self.run = run


class JobFailed(DaybreakError):
    """The job failed. `reason` is error, exhausted, timeout, expired, shed, lost or upstream; `traceback` is the remote
    traceback."""

    def __init__(self, job: str, task: str, reason: str, error: str, attempt: int, traceback: str = "") -> None:
        message = f"job {job} ({task}) failed ({reason}, attempt {attempt})"
        if error:
            message += f": {error}"
        if traceback:
            message += f"\n\n{traceback.rstrip()}"
        super().__init__(message)
        self.job = job
        self.task = task
        self.reason = reason
        self.error = error
        self.attempt = attempt
        self.traceback = traceback


class JobCancelled(DaybreakError):
    """The job was cancelled, so it has no result."""

    def __init__(self, job: str, task: str) -> None:
        super().__init__(f"job {job} ({task}) was cancelled")
        self.job = job


class ResultTimeout(DaybreakError, TimeoutError):
    """The job was not final within the time that `result()` waited. The job continues."""

    def __init__(self, job: str, state: str, waited_for: timedelta) -> None:
        super().__init__(
            f"job {job} is still {state} after {waited_for.total_seconds():g} s; the job continues, ask again later"
        )
        self.job = job
        self.state = state


class CalledDuringImport(DaybreakError):
    """A function that must not run while a worker imports the module was called there."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(
            f"{what} was called at {where} while a worker imports this module; every child would call it again. "
            'Put the call under: if __name__ == "__main__":'
        )


class LeaseLost(DaybreakError):
    """The lease with this fence has ended: another worker holds the job, or it is final. Nothing was written."""

    def __init__(self, job: str, fence: int) -> None:
        super().__init__(f"job {job} is no longer held under fence {fence}: its result is dropped")
        self.job = job
        self.fence = fence


class AttemptOver(LeaseLost):
    """The attempt with this fence has ended already, and not with this outcome; or no attempt had this fence yet.
    Nothing was written."""

    def __init__(self, job: str, fence: int, story: str, *, is_future: bool = False) -> None:
        what = f"no attempt has had fence {fence}" if is_future else f"the attempt with fence {fence} is over"
        DaybreakError.__init__(self, f"job {job}: {what}: {story}; nothing was written")
        self.job = job
        self.fence = fence


class RecordChanged(DaybreakError):
    """A compare-and-set lost the race against another writer."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(
            f"{kind} {name!r} was changed by someone else meanwhile: read it again, then repeat the change"
        )


class CursorExpired(DaybreakError):
    """The events after this cursor were purged, so a reader would miss some."""

    def __init__(self, cursor: str) -> None:
        super().__init__(f"events after {cursor!r} were purged: start again from the oldest (cursor None)")


class StoreError(DaybreakError):
    """The store could not do what was asked."""


class StoreUnavailable(StoreError):
    """The store cannot be reached now; a retry may help."""


class OutcomeUnknown(StoreUnavailable):
    """The commit may or may not have happened; repeating the call is safe."""


class StoreFull(StoreError):
    """No space is left; nothing of this call was written."""


class SpoolFull(StoreError):
    """The spool takes no more jobs; none of this call was accepted."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"the spool {path} is full: {why}; its jobs are forwarded when the store is back, see `daybreak spool`"
        )


class StoreReadOnly(StoreError):
    """The store does not accept writes."""


class StoreCorrupt(StoreError):
    """The stored data is damaged."""


class StoreTooNew(StoreError):
    """The store was written by a newer version of Daybreak."""


class StoreUnsuitable(StoreError):
    """The store cannot keep Daybreak's promises here, or the server refuses this user, password or database."""


class Permanent(DaybreakError):
    """Raised by a task: a retry cannot help, so the job fails at once."""


class Transient(DaybreakError):
    """Raised by a task: a retry may help, but not before `retry_after`, a timedelta or text such as "90s"."""

    def __init__(self, *args: object, retry_after: timedelta | str | None = None) -> None:
        super().__init__(*args)
        if not isinstance(retry_after, timedelta | str | None):
            raise BadInput(f"{self!r}, retry_after: {retry_after!r} has no unit; write '90s', '10m' or a timedelta")
        self.retry_after = retry_after


class Suspend(DaybreakError):
    """Raised by a task: suspend this job until a person resumes it."""

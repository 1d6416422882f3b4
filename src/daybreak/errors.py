"""Every error Daybreak raises on purpose.

DaybreakError
├── BadInput (ValueError)          what was asked cannot be right; says the right spelling
│   ├── TooLarge                   over a stated limit of size or depth
│   ├── NotEncodable               a value that would not come back equal
│   └── Unsupported                right, but not on this store
├── Refused                        right, but not now
│   ├── QueueFull                  the queue is at its capacity
│   ├── KeyConflict                idempotency key in use for other content
│   ├── UniqueConflict             an unfinished job holds this unique name
│   └── WrongState                 the job's state does not allow it
├── JobNotFound (LookupError)
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
    └── StoreUnsuitable            a library or file system that cannot keep the promises

Raised by tasks to say what an error means:
Permanent · Transient · Suspend
"""

from __future__ import annotations

from datetime import timedelta


class DaybreakError(Exception):
    """Root of everything Daybreak raises on purpose."""


class BadInput(DaybreakError, ValueError):
    pass


class TooLarge(BadInput):
    pass


class NotEncodable(BadInput):
    pass


class Unsupported(BadInput):
    pass


class Refused(DaybreakError):
    pass


class QueueFull(Refused):
    def __init__(self, queue: str, retry_after: timedelta = timedelta(seconds=5)) -> None:
        super().__init__(
            f"queue {queue!r} is full: it holds as many unfinished jobs as its capacity allows; "
            f"try again in {retry_after.total_seconds():g} s, or raise the queue's capacity"
        )
        self.queue = queue
        self.retry_after = retry_after


class KeyConflict(Refused):
    def __init__(self, key: str, job: str) -> None:
        super().__init__(
            f"idempotency key {key!r} belongs to job {job}, which was submitted with other content; "
            "use a new key for new content"
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


class JobNotFound(DaybreakError, LookupError):
    def __init__(self, job: str) -> None:
        super().__init__(f"no job {job}: never submitted here, or removed since")
        self.job = job


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
    """Raised by a task: trying again may help, not before `retry_after` has passed."""

    def __init__(self, *args: object, retry_after: timedelta | None = None) -> None:
        super().__init__(*args)
        self.retry_after = retry_after


class Suspend(DaybreakError):
    """Raised by a task: hold this job until someone resumes it."""

"""From the marks on an item to the one store operation that makes them true."""

from __future__ import annotations

from daybreak.core.model import WAITING, Done, Failed, Failure, HandedBack, Job, State, Suspended
from daybreak.core.units import clean

from .errors import ItemTakenError, QueueError
from .item_store import Held, ItemStore
from .items import QueueItem, QueueItemStatus, checked_priority


def move(store: ItemStore, job: Job, item: QueueItem) -> None:
    """Bring the job to the state that is marked on the item. Call it with the store's lock held."""
    priority = checked_priority(item.priority)
    held = store.held.get(job.id)
    if job.state is State.RUNNING and held is None:
        raise ItemTakenError(f"item {item.id} is being processed by another program. Nothing was changed")
    refuse_old_copy(job, item)
    match item.status:
        case QueueItemStatus.PENDING:
            _to_pending(store, job, item, held)
        case QueueItemStatus.SUSPENDED:
            _to_suspended(store, job, item, held)
        case QueueItemStatus.PROCESSING:
            if held is None or not held.is_marked:
                _begin(store, job, item)
        case QueueItemStatus.COMPLETED:
            if job.state is not State.COMPLETED:
                _to_completed(store, job, item, held)
        case QueueItemStatus.FAILED:
            _to_failed(store, job, item, held)
    if priority != job.priority:
        _rerank(store, job.id, priority)


def hand_back(store: ItemStore, held: Held) -> None:
    """Return an item to its place. The attempt counts if work on it had begun."""
    store.end(held, HandedBack(charged=held.is_marked, unused=not held.is_marked))


def refuse_old_copy(job: Job, item: QueueItem) -> None:
    """Refuse a copy that was read before somebody else took the item. Only an explicit reset is taken from any copy."""
    if item.origin is None or item.origin.fence == job.fence or item.is_reset:
        return
    if job.state in WAITING and item.status in (QueueItemStatus.PENDING, QueueItemStatus.PROCESSING):
        return  # it came back meanwhile: whoever wants it may have it
    raise ItemTakenError(
        f"item {item.id} was taken by somebody else since this copy of it was read (it is {job.state.value} now). "
        "Nothing was changed; read it again with get()"
    )


def _to_pending(store: ItemStore, job: Job, item: QueueItem, held: Held | None) -> None:
    if held is not None:
        if held.is_marked or item.is_reset:
            hand_back(store, held)
    elif job.state is State.SUSPENDED:
        store.amend("resume", job.id)
    elif job.is_final:
        _again(store, job, item)
    elif item.origin is not None and item.origin.revision == job.revision:
        _note(store, job, item)


def _note(store: ItemStore, job: Job, item: QueueItem) -> None:
    """Keep attempts and an error that the caller wrote into a waiting item itself."""
    error = item.last_error or ""
    is_new_error = error != (job.failure.message if job.failure else "")
    if item.attempts != job.attempt or is_new_error:
        held = store.take(job.id)
        if held is not None:
            failure = Failure(message=clean(error)) if is_new_error else None
            store.end(held, HandedBack(unused=True), attempts=max(item.attempts, 0), failure=failure)


def _again(store: ItemStore, job: Job, item: QueueItem) -> None:
    """Queue a finished item again. It keeps its attempts if some are left, otherwise it gets all of them anew."""
    store.requeue_failed(job, job.attempt if job.attempt < item.max_attempts else 0)


def _to_suspended(store: ItemStore, job: Job, item: QueueItem, held: Held | None) -> None:
    note = clean(item.last_error or "")
    if held is None and job.state in WAITING and item.attempts != job.attempt:
        held = store.take(job.id)  # the caller counted an attempt itself
    if held is not None:
        attempts = held.lease.attempt if held.is_marked else max(item.attempts, 0)
        store.end(held, Suspended(note), attempts=attempts)
    elif job.is_final:
        raise QueueError(f"item {item.id} is {job.state.value}; only an unfinished item can be suspended")
    elif job.state is not State.SUSPENDED:
        store.amend("suspend", job.id, note=note)


def _to_completed(store: ItemStore, job: Job, item: QueueItem, held: Held | None) -> None:
    if held is not None and held.is_marked:
        store.end(held, Done())
    else:
        store.end(held or _take(store, job, item), Done(), attempts=item.attempts)


def _to_failed(store: ItemStore, job: Job, item: QueueItem, held: Held | None) -> None:
    """An attempt that failed: policy decides whether there is another one. An item that was not being processed failed
    for good, and so did one whose attempts, as the caller counts them, are used up."""
    if job.state is State.FAILED:
        return
    message = clean(item.last_error or "")
    if held is not None and held.is_marked:
        has_more = held.lease.attempt < item.max_attempts
        failed = Failed(Failure(message=message, verdict="transient" if has_more else "permanent"))
        state = store.end(held, failed)
        if has_more and state is State.FAILED:  # the caller has raised max_attempts since the item was added
            store.requeue_failed(job, held.lease.attempt)
    else:
        failed = Failed(Failure(message=message, verdict="permanent"))
        store.end(held or _take(store, job, item), failed, attempts=item.attempts)


def fail(store: ItemStore, job: Job, item: QueueItem) -> None:
    """End the processing of an item as failed, whether or not it has attempts left."""
    refuse_old_copy(job, item)
    held = store.held.get(job.id)
    if held is None or not held.is_marked:
        raise ItemTakenError(f"item {item.id} is not being processed (it is {job.state.value}). Nothing was changed")
    store.end(held, Failed(Failure(message=clean(item.last_error or ""), verdict="permanent")))


def _begin(store: ItemStore, job: Job, item: QueueItem) -> None:
    held = store.held.get(job.id)
    if held is not None:
        store.begin(held)
    else:
        _take(store, job, item)


def _take(store: ItemStore, job: Job, item: QueueItem) -> Held:
    """Lease exactly this item, and begin. The other items keep their places."""
    if job.state is State.COMPLETED:
        raise QueueError(f"item {item.id} is completed; reset it to pending first if it must be processed again")
    if job.state is State.SUSPENDED:
        store.amend("resume", job.id)
    elif job.state is State.FAILED:
        _again(store, job, item)
    held = store.take(job.id, is_marked=True)
    if held is None:
        raise ItemTakenError(f"item {item.id} cannot be taken now. Nothing was changed; read it again with get()")
    return held


def _rerank(store: ItemStore, job_id: str, priority: int) -> None:
    """Change the priority of an item that waits. That of a finished one, or of one in processing, stays."""
    job = store.job(job_id)
    if job is not None and job.state in WAITING:
        store.amend("rerank", job_id, priority=priority)

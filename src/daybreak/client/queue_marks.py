"""What is told of queues as a whole: that one is empty, and that a full one has room again.

No store does this in its transactions: it would have to count at every end whether the job was the last of its queue. A
service asks now and then, and a record per queue, written by compare-and-set, lets one of many workers tell."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from daybreak.core.model import UNFINISHED, Put, QueueSettings
from daybreak.core.queue_marks import EMPTY_QUEUE, FULL_QUEUE, has_room
from daybreak.store.protocol import MAXIMA, Filter, Store

Activity = dict[str, int]  # by queue: grows with every job that is submitted or ends


class EmptyQueue(Struct, frozen=True):
    """The activity of a queue when it was last told that it is empty."""

    activity: int


async def read_activity(store: Store) -> Activity:
    """How much has ever happened in each queue."""
    activity: Activity = {}
    for total in await store.totals():
        if total.what not in MAXIMA:
            activity[total.queue] = activity.get(total.queue, 0) + total.n
    return activity


async def tell_empty_queues(store: Store, activity: Activity, by: str) -> None:
    """Tell which queues have no unfinished job, each once until more has happened in it."""
    told = {record.name: record for record in await store.records(EMPTY_QUEUE)}
    unfinished = await _unfinished(store)
    puts = []
    for queue, so_far in activity.items():
        record = told.get(queue)
        before = None if record is None else msgspec.json.decode(record.value, type=EmptyQueue).activity
        if before != so_far and not unfinished.get(queue):
            value, revision = msgspec.json.encode(EmptyQueue(so_far)), 0 if record is None else record.revision
            puts.append(
                Put(kind=EMPTY_QUEUE, name=queue, value=value, expect=revision, tells="queue_empty", by=by)
            )  # fmt: skip
    if puts:
        await store.put(puts)


async def forget_full_queues(store: Store) -> None:
    """Delete the marks of full queues that have room again, so that it is told when they are full once more."""
    marks = await store.records(FULL_QUEUE)
    if not marks:
        return
    settings = {
        record.name: msgspec.json.decode(record.value, type=QueueSettings) for record in await store.records("queue")
    }
    unfinished = await _unfinished(store)
    gone = [
        mark
        for mark in marks
        if mark.name not in settings or has_room(unfinished.get(mark.name, 0), settings[mark.name].capacity)
    ]
    if gone:
        await store.put([Put(kind=FULL_QUEUE, name=mark.name, value=None, expect=mark.revision) for mark in gone])


async def _unfinished(store: Store) -> dict[str, int]:
    counts: dict[str, int] = {}
    for tally in await store.count(Filter(states=UNFINISHED)):
        counts[tally.queue] = counts.get(tally.queue, 0) + tally.n
    return counts

"""Move schedules from one store to another, so that each tick is fired in one of the two.

A schedule is marked in the source, where it is not fired any more; then written to the target, with how far it has
come; then deleted from the source. A mover that is killed in between leaves a marked schedule, and the next mover
continues from there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from daybreak.client.schedule_record import Schedule, StoredSchedule, read_schedules
from daybreak.core.model import Put
from daybreak.store.protocol import SCHEDULE_KIND, Store
from daybreak.values.file import digests_in

CopyContents = Callable[[set[str]], Awaitable[None]]


async def move_schedules(
    source: Store, target: Store, *, queue: str | None, copy_contents: CopyContents
) -> tuple[int, dict[str, str]]:
    """Move the schedules of a queue, or all. Returns how many were moved, and for each that stayed why. `copy_contents`
    copies the files among the arguments."""
    moved, held_back = 0, dict[str, str]()
    for found in await read_schedules(source):
        if queue not in (None, found.schedule.declaration.spec.queue):
            continue
        marked = await _mark(source, found)
        if marked is None:
            held_back[found.name] = "it is changed all the time; move again"
            continue
        await copy_contents(digests_in(bytes(marked.schedule.declaration.args)))
        if await _is_there(target, marked):
            await source.put([Put(kind=SCHEDULE_KIND, name=found.name, value=None, expect=marked.revision)])
            moved += 1
        else:
            await _write(source, found.name, replace(marked.schedule, moving=False), marked.revision)
            held_back[found.name] = "the target has another schedule of this name"
    return moved, held_back


async def _mark(source: Store, found: StoredSchedule) -> StoredSchedule | None:
    """Stop the schedule in the source, by compare-and-set: no tick is fired there after this."""
    for _ in range(20):
        if found.schedule.moving:
            return found
        marked = replace(found.schedule, moving=True)
        revision = await _write(source, found.name, marked, found.revision)
        if revision is not None:
            return StoredSchedule(found.name, marked, revision)
        again = await read_schedules(source, found.name)
        if not again:
            return None
        [found] = again
    return None


async def _is_there(target: Store, marked: StoredSchedule) -> bool:
    """Write the schedule to the target. True also if an earlier move has written it."""
    if await _write(target, marked.name, replace(marked.schedule, moving=False), 0) is not None:
        return True
    there = await read_schedules(target, marked.name)
    return bool(there) and there[0].schedule.declaration.digest() == marked.schedule.declaration.digest()


async def _write(store: Store, name: str, schedule: Schedule, expect: int) -> int | None:
    """The new revision; None if the record has another one than expected."""
    put = Put(kind=SCHEDULE_KIND, name=name, value=schedule.encoded(), expect=expect)
    [written] = await store.put([put])
    return None if written is None else written.revision

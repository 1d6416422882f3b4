"""Move sagas from one store to another with their jobs.

Sagas that have not ended are marked in the source before the first job is moved: nobody drives them there any more.
When the jobs are moved, the record is written to the target, and deleted from the source. A mover that is killed in
between leaves marked sagas, and the next mover continues from there."""

from __future__ import annotations

from msgspec.structs import replace

from daybreak.client.saga_record import SAGA_KIND, StoredSaga, forget_mark, read_saga, read_sagas, write_saga
from daybreak.core.errors import BadInput
from daybreak.core.model import Put
from daybreak.store.protocol import Filter, Store


async def hold_sagas(source: Store, *, queue: str | None) -> None:
    """Stop the sagas of the source until they are moved. Raises BadInput if only some of their jobs are to be moved."""
    for found in await read_sagas(source):
        if found.saga.progress.is_finished:
            continue
        if queue is not None:
            specs = [spec for step in found.saga.definition for spec in (step.spec, step.undo) if spec is not None]
            if any(spec.queue == queue for spec in specs):
                raise BadInput(
                    f"saga {found.id!r} has steps in queue {queue!r} and has not ended: wait for it, cancel it, "
                    "or move the whole store"
                )
        elif not found.saga.moving:
            await _mark(source, found, moving=True)


async def move_sagas(source: Store, target: Store) -> int:
    """Move the sagas of which no job is left in the source, and let the others go on there. Returns how many were
    moved."""
    moved = 0
    for found in await read_sagas(source):
        if await source.count(Filter(run=f"saga:{found.id}")):
            if found.saga.moving:
                await _mark(source, found, moving=False)
            continue
        there = replace(found.saga, moving=False)
        if await write_saga(target, found.id, there, 0) or await read_saga(target, found.id) is not None:
            await source.put([Put(kind=SAGA_KIND, name=found.id, value=None, expect=found.revision)])
            await forget_mark(source, found.id)
            moved += 1
    return moved


async def _mark(source: Store, found: StoredSaga, *, moving: bool) -> None:
    current: StoredSaga | None = found
    while current is not None and not current.saga.progress.is_finished and current.saga.moving != moving:
        if await write_saga(source, current.id, replace(current.saga, moving=moving), current.revision):
            return
        current = await read_saga(source, current.id)

"""Deleting a run: its jobs in bounded chunks, then its record. Whoever is killed in between, the next one goes on."""

from __future__ import annotations

from daybreak.client.client import Client
from daybreak.core.model import FINAL, UNFINISHED, Put
from daybreak.runs.record import KIND, MARK_KIND, RunRecord, label_of, read_run


def labels_of(name: str, run: RunRecord) -> list[str]:
    """What the jobs of all epochs name as their run."""
    return [label_of(name, epoch) for epoch in range(1, run.epoch + 1)]


async def remove_jobs(client: Client, name: str, run: RunRecord) -> int:
    """Cancel what is unfinished, and remove what has ended. Returns how many jobs were removed."""
    removed = 0
    for label in labels_of(name, run):
        await client.amend_all("cancel", run=label, state=UNFINISHED, note="the run was deleted")
        removed += await client.amend_all("remove", run=label, state=FINAL)
    return removed


async def continue_deletion(client: Client, name: str, run: RunRecord) -> bool:
    """Remove what can be removed. True once nothing is left; a job that still runs must end first."""
    await remove_jobs(client, name, run)
    return await forget_run(client, name, run)


async def forget_run(client: Client, name: str, run: RunRecord) -> bool:
    """Remove the record of a run that is being deleted, once it has no jobs any more."""
    for label in labels_of(name, run):
        if any((await client.count(run=label)).values()):
            return False
    record, revision = await read_run(client.store, name)
    if record is None:
        return True
    if not record.deleting:
        return False
    [removed] = await client.store.put([Put(kind=KIND, name=name, value=None, expect=revision)])
    if removed is None:
        return False
    await client.store.put([Put(kind=MARK_KIND, name=name, value=None)])
    return True

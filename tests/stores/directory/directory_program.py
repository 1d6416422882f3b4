"""A program that submits and runs jobs on a directory store until it is killed. It prints a line for each answer: what
was accepted, started and completed."""

from __future__ import annotations

import asyncio
import itertools
import sys
from datetime import timedelta

from daybreak.core.model import Done, JobSpec, Lost, Options, Retry, State
from daybreak.policy.settle import settle
from daybreak.store.protocol import Beat, Claim, Exchange, Reap, Verdict
from daybreak.stores.directory import DirectoryStore

LEASE = timedelta(milliseconds=50)
OPTIONS = Options(retry=Retry(attempts=1000, strategy="fixed", delay=timedelta()), deaths=1000)


def tell(what: str, *jobs: str) -> None:
    for job in jobs:
        print(what, job, flush=True)


async def recover(store: DirectoryStore) -> None:
    """Give the jobs of the killed program back."""
    lapsed = await store.reap(Reap(worker="r", watched_for=timedelta(hours=1), limit=1000))
    settlements = [settle(lease, Lost(), chance=0.5, by="r") for lease in lapsed]
    await store.exchange(Exchange(settle=settlements))


async def run(folder: str, name: str, *, until_idle: bool) -> None:
    async with DirectoryStore(folder) as store:
        tell("open", name)
        for number in itertools.count():
            specs = [JobSpec(id=f"{name}-{number}-{n}", task="work", options=OPTIONS) for n in range(3)]
            if not until_idle:
                answers = await store.insert(specs)
                tell("accepted", *(one.job for one in answers if one.verdict is Verdict.NEW))
            await recover(store)
            claim = Claim(worker=name, limit=4, lease_for=LEASE)
            leases = (await store.exchange(Exchange(claim=claim))).leases
            tell("started", *(lease.job for lease in leases))
            await store.extend([Beat(seq=lease.seq, fence=lease.fence, lease_for=LEASE) for lease in leases])
            done = [settle(lease, Done(b"1"), chance=0.5, by=name) for lease in leases]
            settled = (await store.exchange(Exchange(settle=done))).settled
            tell("completed", *(lease.job for lease, is_held in zip(leases, settled, strict=True) if is_held))
            if until_idle and not leases and not await unfinished(store):
                return


async def unfinished(store: DirectoryStore) -> int:
    return sum(tally.n for tally in await store.count() if tally.state is not State.COMPLETED)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], until_idle=len(sys.argv) > 3))

"""Processes of test_store_flights.py: python flights_client.py ROLE URL.

submitter   says that it is ready, waits for a line with the number of jobs, submits them all alike, waits until they
have ended, and says how it was answered and with what the jobs ended
worker      computes: says which job it begins, works for a moment, settles it; until its input closes"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections import Counter
from datetime import timedelta

from daybreak.core.model import FINAL, Caching, Done, JobSpec, Lost, Options
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange, Reap, Store
from daybreak.stores import store_for
from daybreak.system.ports import Ids, RealWorld

FLIGHT = "the only one"
LEASE = timedelta(seconds=1)
WORK = 0.3  # seconds
GIVE_UP = 60.0
PARTS = (100, 50, 25, 1)  # how many jobs go into one insert, in turn


def say(**said: object) -> None:
    print(json.dumps(said), flush=True)


async def submit(store: Store) -> None:
    ids, options = Ids(RealWorld()), Options(cache=Caching())
    say(word="ready")
    count = int(await asyncio.to_thread(sys.stdin.readline))
    specs = [JobSpec(id=ids(), task="simulate", flight=FLIGHT, options=options) for _ in range(count)]
    verdicts: Counter[str] = Counter()
    start = turn = 0
    while start < count:
        part = specs[start : start + PARTS[turn % len(PARTS)]]
        verdicts.update(answer.verdict.value for answer in await store.insert(part))
        start, turn = start + len(part), turn + 1
    say(word="submitted", verdicts=verdicts)
    until = time.monotonic() + GIVE_UP
    while time.monotonic() < until:
        jobs = await store.get([spec.id for spec in specs])
        if all(job is None or job.state in FINAL for job in jobs):
            break
        await asyncio.sleep(0.1)
    ends = Counter("gone" if job is None else f"{job.state} {job.result!r}" for job in jobs)
    say(word="ended", ends=ends)


async def work(store: Store) -> None:
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    say(word="ready")
    began = time.monotonic()
    while not over.is_set():
        reap = Reap(worker="reaper", watched_for=timedelta(seconds=time.monotonic() - began))
        for lease in await store.reap(reap):
            handed_back = settle(lease, Lost(), chance=0.5, by="reaper")
            await store.exchange(Exchange(settle=[handed_back]))
        await store.advance()
        answer = await store.exchange(Exchange(claim=Claim(worker="w", lease_for=LEASE)))
        for lease in answer.leases:
            say(word="began", job=lease.job)
            await asyncio.sleep(WORK)
            done = settle(lease, Done(b'"41.5"', ran=WORK), chance=0.5, by="w")
            [is_settled] = (await store.exchange(Exchange(settle=[done]))).settled
            say(word="did" if is_settled else "lost", job=lease.job)
        if not answer.leases:
            await asyncio.sleep(0.02)


async def main(role: str, url: str) -> None:
    async with store_for(url) as store:  # type: ignore[attr-defined]
        await (submit(store) if role == "submitter" else work(store))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

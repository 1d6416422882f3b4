"""Client processes: python server_client.py ROLE URL NAME. Those who submit go on until their input closes.

    patient   submits with keys through the app, which asks again by itself while the store is away
    bare      submits with keys and is told of every trouble: then it submits anew, as another job under the same key
    delayed   submits jobs that wait
    writer    inserts, claims and settles, several at a time

Who submits writes a line for each answer: what is acknowledged there must be kept."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from player_processes import count
from server_checks import opened
from worker_load import STUBBORN, aeffect, app, effect
from worker_processes import ask, write_line

from daybreak import Client
from daybreak.core.errors import StoreUnavailable
from daybreak.core.model import Done, Lease
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange, Store
from daybreak.system.ports import Ids, RealWorld
from daybreak.testing.contract.builders import spec

DELAY = 1.5  # seconds that delayed jobs wait
GIVE_UP = 60.0
HANDS = 3  # of a writer
ROUNDS = count(30, 700)  # of each


def main(role: str, url: str, name: str) -> None:
    over = threading.Event()
    threading.Thread(target=listen, args=(over,), daemon=True).start()
    app.use(url)
    app.portal.run(app.client())
    print("ready", flush=True)
    if role == "writer":
        asyncio.run(write(url, name))
    elif role == "delayed":
        for n in range(20):
            task = (effect, aeffect)[n % 2]
            asked_at = time.monotonic()
            job = task.using(delay=timedelta(seconds=DELAY)).submit(0.0).id
            write_line(word="delayed", job=job, asked_at=asked_at)
        over.wait()
    else:
        submit_on({"patient": patiently, "bare": barely}[role], name, over)
    app.close()


def listen(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


def submit_on(submit: Callable[[int, str, float], str], name: str, over: threading.Event) -> None:
    """What is said under one key is always the same, and sometimes said again."""
    chance = random.Random(name)
    n = 0
    while not over.is_set():
        key, seconds = f"{name}-{n}", chance.random() * 0.05
        for _ in range(1 if chance.random() < 0.7 else 2):
            job, tries = answered(lambda: submit(n, key, seconds))  # noqa: B023 - called here and now
            write_line(word="acknowledged", key=key, job=job, tries=tries)
        n += 1
        time.sleep(chance.random() * 0.02)


def answered(submit: Callable[[], str]) -> tuple[str, int]:
    deadline = time.monotonic() + GIVE_UP
    for tries in range(1, 10_000):
        try:
            return submit(), tries
        except StoreUnavailable:
            assert time.monotonic() < deadline, "the store did not come back"
            time.sleep(0.02)
    raise AssertionError


def patiently(n: int, key: str, seconds: float) -> str:
    job: str = (effect, aeffect)[n % 2].using(key=key).submit(seconds).id
    return job


def barely(n: int, key: str, seconds: float) -> str:
    task = (effect, aeffect)[n % 2]

    async def submit(client: Client) -> str:
        bare = Client(client.store, by="bare", patience=timedelta())
        return await bare.submit(
            task.name, {"seconds": seconds}, queue=task.definition.queue, key=key, retry=STUBBORN["retry"]
        )

    return ask(app, submit)


async def write(url: str, name: str) -> None:
    async with opened(url) as store:
        await asyncio.gather(*(write_with(store, f"{name}.{hand}") for hand in range(HANDS)))


async def write_with(store: Store, name: str) -> None:
    """Each round settles what the last one took; what the last of all takes stays under way."""
    chance, new_id = random.Random(name), Ids(RealWorld())
    held: list[Lease] = []
    for _ in range(ROUNDS):
        ended = [settle(lease, Done(b"1"), chance=0.5, by=name) for lease in held]
        new = [spec(id=new_id()) for _ in range(chance.randrange(1, 4))]
        claim = Claim(worker=name, limit=chance.randrange(1, 5), lease_for=timedelta(minutes=5))
        together = chance.random() < 0.2
        if not together:
            await store.insert(new)
        answer = await store.exchange(Exchange(settle=ended, insert=new if together else [], claim=claim))
        assert all(answer.settled), "a live lease was lost"
        held = answer.leases


if __name__ == "__main__":
    main(*sys.argv[1:])

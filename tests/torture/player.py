"""One process of a torture test: plays a role on a store until its input closes, and tells what it did.

    python player.py ROLE PATH '{"name": "p1", "log": "lines", ...}'

It tells in an O_APPEND file, one line in one write: lines of many processes never mix, and a line stands once it is
written, whatever happens to its process. Its orders come as lines on stdin; the end of input means: stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import resource
import select
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import msgspec

from daybreak.client.client import Client
from daybreak.core.errors import StoreError
from daybreak.core.model import Done, JobSpec, Lease, Options, Retry
from daybreak.policy.settle import settle
from daybreak.services.reaper import Reaper
from daybreak.services.runner import run
from daybreak.services.scheduler import Scheduler
from daybreak.store.protocol import Claim, Exchange, Exchanged, Inserted, Purge, Verdict, work_topic
from daybreak.stores.sqlite import SqliteStore
from daybreak.system.ports import RealWorld

# Whatever dies, the job is not to blame here: each must end completed.
STUBBORN = Options(deaths=10_000, retry=Retry(attempts=10_000))
QUEUES = ("wide", "narrow")
USUALLY_WIDE = ("wide",) * 9 + ("narrow",)


@dataclass
class Part:
    store: SqliteStore
    client: Client
    name: str
    log: int
    params: dict[str, Any]
    chance: random.Random
    orders: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, op: str, **facts: Any) -> None:
        write(self.log, op, self.name, **facts)

    @property
    def going(self) -> bool:
        return not self.stop.is_set()

    @property
    def lease_for(self) -> timedelta:
        return timedelta(seconds=self.params.get("lease", 1.0))

    def claim(self, limit: int) -> Claim:
        queues = tuple(self.params.get("queues", QUEUES))
        return Claim(worker=self.name, queues=queues, limit=limit, lease_for=self.lease_for)

    def specs(self, n: int) -> list[JobSpec]:
        return [
            self.client.spec(
                "noop",
                {"pad": "x" * self.params.get("pad", 40)},
                queue=self.chance.choice(USUALLY_WIDE),
                priority=self.chance.choice([0, 2, 5, 5, 5, 10]),
            )
            for _ in range(n)
        ]

    async def submit(self, n: int) -> list[Inserted]:
        specs = [stubborn(spec) for spec in self.specs(n)]
        answers = await self.client.submit_many(specs)
        self.tell("ack", jobs=[a.job for a in answers if a.verdict is Verdict.NEW])
        return answers

    async def exchange(self, held: list[Lease], limit: int) -> list[Lease]:
        done = [self.done(lease) for lease in held]
        answer: Exchanged = await self.store.exchange(Exchange(settle=done, claim=self.claim(limit) if limit else None))
        if done:
            self.tell("settled", jobs=[[s.job, s.fence, ok] for s, ok in zip(done, answer.settled, strict=True)])
        if answer.leases:
            self.tell("claimed", jobs=[[lease.job, lease.fence] for lease in answer.leases])
        return answer.leases

    def done(self, lease: Lease) -> Any:
        result = json.dumps({"by": self.name, "fence": lease.fence}).encode()
        return settle(lease, Done(result), chance=0.5, by=self.name)


def stubborn(spec: JobSpec) -> JobSpec:
    return msgspec.structs.replace(spec, options=STUBBORN)


def write(log: int, op: str, name: str, **facts: Any) -> None:
    line = json.dumps({"t": time.monotonic(), "wall": time.time(), "p": name, "op": op, **facts})
    os.write(log, line.encode() + b"\n")


# -- roles -------------------------------------------------------------------------------------------------------------


async def mix(part: Part) -> None:
    """Submits as much as it works off, without a pause."""
    held: list[Lease] = []
    limit = part.params.get("limit", 3)
    while part.going:
        held = await part.exchange(held, limit)
        await part.submit(len(held) or 1)
        if work := part.params.get("work"):
            await asyncio.sleep(part.chance.random() * work)
    await part.exchange(held, 0)


async def submit(part: Part) -> None:
    """Submits singly, several at once (which coalesces), and in bulk."""

    async def one() -> None:
        [spec] = part.specs(1)
        job = await part.client.submit(stubborn(spec))
        part.tell("ack", jobs=[job])

    while part.going:
        await asyncio.gather(*(one() for _ in range(part.chance.randint(1, 8))))
        await part.submit(part.chance.randint(1, 30))
        await asyncio.sleep(part.chance.random() * part.params.get("pause", 0.0))


async def work(part: Part) -> None:
    """Claims, says which job it starts, works a moment, settles."""
    while part.going:
        leases = await part.exchange([], part.chance.randint(1, 10))
        for lease in leases:
            part.tell("start", job=lease.job, fence=lease.fence)
        if part.chance.random() < 0.3 or not leases:
            await asyncio.sleep(part.chance.random() * part.params.get("work", 0.02))
        await part.exchange(leases, 0)


async def idle(part: Part) -> None:
    """Waits to be woken and counts how often that happened."""
    watch = part.store.watch([work_topic(queue) for queue in part.params.get("queues", QUEUES)])
    woken = timed_out = claims = 0
    stop = asyncio.create_task(part.stop.wait())
    part.tell("idling")
    held: list[Lease] = []
    while part.going:
        held, asked = await part.exchange(held, 20), len(held)
        claims += 1
        if held or asked:
            continue
        wait = asyncio.create_task(watch.wait(timedelta(seconds=60)))
        order = asyncio.create_task(part.orders.get())
        await asyncio.wait({wait, stop, order}, return_when=asyncio.FIRST_COMPLETED)
        if order.done():
            usage = resource.getrusage(resource.RUSAGE_SELF)
            cpu = usage.ru_utime + usage.ru_stime
            switches = usage.ru_nvcsw + usage.ru_nivcsw
            part.tell("usage", cpu=cpu, woken=woken, timed_out=timed_out, claims=claims, switches=switches)
        elif wait.done():
            woken += wait.result()
            timed_out += not wait.result()
        for task in (wait, order):
            task.cancel()
        await asyncio.gather(wait, order, return_exceptions=True)
    stop.cancel()
    watch.close()


async def grow(part: Part) -> None:
    """Takes jobs through their whole life, purge included, and tells of sizes on the way."""
    path, jobs, batch = Path(part.params["path"]), part.params["jobs"], part.params.get("batch", 500)
    keep = Options(keep_completed=timedelta(), keep_failed=timedelta())
    purge = Purge(limit=2 * batch, events_for=timedelta(), keys_for=timedelta())
    done = 0
    while done < jobs and part.going:
        specs = [JobSpec(id=part.client._new_id(), task="noop", args=b'{"n":1}', options=keep) for _ in range(batch)]
        await part.client.submit_many(specs)
        claim = Claim(worker=part.name, limit=batch, lease_for=timedelta(seconds=60))
        leases = (await part.store.exchange(Exchange(claim=claim))).leases
        await part.store.exchange(Exchange(settle=[part.done(lease) for lease in leases]))
        purged = 0
        if not part.params.get("keep"):
            while (answer := await part.store.purge(purge)).again:
                purged += answer.jobs
        done += len(leases)
        if done % (10 * batch) == 0:
            part.tell("size", jobs=done, rss=rss(), wal=size(path, "-wal"), db=size(path, ""), fds=fds())
    part.tell("grown", jobs=done)


async def churn(part: Part) -> None:
    """A writer with its own small rounds, told to go on until stopped; says how big the log is."""
    path = Path(part.params["path"])
    while part.going:
        await part.exchange(await part.exchange([], 20), 0)
        await part.submit(20)
        part.tell("size", wal=size(path, "-wal"), db=size(path, ""))


async def opens(part: Part) -> None:
    """Opens one fresh file after the other, each at the same moment as all other players, and submits to it."""
    for n in range(part.params["files"]):
        path = Path(part.params["fresh"]) / f"{n}.db"
        at = part.params["start"] + n * part.params["step"] + part.chance.random() * part.params["spread"]
        while time.monotonic() < at:  # to the microsecond: sleeping would come too late
            pass
        try:
            async with SqliteStore(path) as store:
                [answer] = await store.insert([stubborn(spec) for spec in part.specs(1)])
                part.tell("ack", jobs=[answer.job], file=n)
        except StoreError as trouble:
            part.tell("error", type=type(trouble).__name__, text=str(trouble))


async def flicker(part: Part) -> None:
    """Opens, submits, works and closes, again and again, as a command line does: often it is the last one out, who
    moves the log into the file and deletes it."""
    while part.going:
        began = time.monotonic()
        try:
            async with SqliteStore(part.params["path"], stuck_after=part.lease_for) as store:
                visit = replace(part, store=store, client=Client(store, by=part.name))
                await visit.submit(2)
                await visit.exchange(await visit.exchange([], 2), 0)
        except StoreError as trouble:
            part.tell("error", type=type(trouble).__name__, text=str(trouble))
        part.tell("visit", took=time.monotonic() - began)


async def twins(part: Part) -> None:
    """Two stores of one process on one file, and a third that comes and goes: record locks are the process's, and
    closing any descriptor of a file would drop them."""

    async def come_and_go() -> None:
        while part.going:
            async with SqliteStore(part.params["path"]) as store:
                [answer] = await store.insert([stubborn(spec) for spec in part.specs(1)])
                part.tell("ack", jobs=[answer.job])

    async with SqliteStore(part.params["path"]) as second:
        other = replace(part, store=second, client=Client(second, by=part.name), name=f"{part.name}-twin")
        await asyncio.gather(mix(part), mix(other), come_and_go())


async def fork(part: Part) -> None:
    """Goes on working while its forked children, as those of multiprocessing do, open the same file anew and end."""
    for _ in range(part.params["children"]):
        await part.submit(3)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                asyncio.events._set_running_loop(None)
                asyncio.run(as_child(part))
                code = 0
            finally:
                os._exit(code)
        await part.exchange(await part.exchange([], 3), 0)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        part.tell("child", status=status)


async def as_child(part: Part) -> None:
    async with SqliteStore(part.params["path"]) as store:
        name = f"{part.params['name']}-{os.getpid()}"
        child = replace(part, store=store, client=Client(store, by=name), name=name)
        for _ in range(5):
            await child.submit(2)
            await child.exchange(await child.exchange([], 2), 0)


ROLES = {
    "mix": mix,
    "submit": submit,
    "work": work,
    "idle": idle,
    "grow": grow,
    "churn": churn,
    "opens": opens,
    "flicker": flicker,
    "twins": twins,
    "fork": fork,
}


def read_on(path: str) -> None:
    """Holds one read transaction until its input closes."""
    reader = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    announce()
    sys.stdin.read()
    reader.close()


def burn() -> None:
    """Keeps one core busy until its input closes."""
    announce()
    while not select.select([0], [], [], 0)[0]:
        sum(range(10_000))


# -- the process -------------------------------------------------------------------------------------------------------


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def fds() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def size(path: Path, suffix: str) -> int:
    with contextlib.suppress(FileNotFoundError):
        return Path(f"{path}{suffix}").stat().st_size
    return 0


def announce() -> None:
    print("ready", flush=True)


def listen(part: Part) -> None:
    """Orders reach the part as they come; the end of input sets `stop`."""

    def hear() -> None:
        heard = os.read(0, 4096)
        if not heard:
            asyncio.get_running_loop().remove_reader(0)
            part.stop.set()
        for order in heard.decode().split():
            part.orders.put_nowait(order)

    asyncio.get_running_loop().add_reader(0, hear)


async def play(role: str, path: str, params: dict[str, Any]) -> None:
    world = RealWorld()
    log = os.open(params["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    name = f"{params['name']}-{os.getpid()}"
    # One who flickers must not hold the file open besides.
    base = f"{path}-base" if role in {"flicker", "opens"} else path
    async with SqliteStore(base, stuck_after=timedelta(seconds=params.get("lease", 1.0))) as store:
        part = Part(store, Client(store, by=name), name, log, params, random.Random(params.get("seed", name)))
        listen(part)
        announce()
        if params.get("barrier"):
            await part.orders.get()
        services = asyncio.create_task(run(list(duties(part, world)), world))
        try:
            await ROLES[role](part)
        except StoreError as trouble:
            part.tell("error", type=type(trouble).__name__, text=str(trouble))
            raise
        finally:
            services.cancel()
            await asyncio.gather(services, return_exceptions=True)
    os.close(log)


def duties(part: Part, world: RealWorld) -> Iterable[Any]:
    if part.params.get("reaps"):
        yield Reaper(part.store, world, name=part.name, every=timedelta(seconds=0.1))
        yield Scheduler(part.store, every=timedelta(seconds=1))


if __name__ == "__main__":
    chosen, where, told = sys.argv[1:4]
    if chosen == "read":
        read_on(where)
    elif chosen == "burn":
        burn()
    else:
        asyncio.run(play(chosen, where, json.loads(told)))

"""The cost of a claim and of a submit does not depend on how much waits.

Counted, not timed: steps of SQLite's virtual machine and pages looked at, which no load on the machine can change."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import apsw
import pytest
from msgspec import structs
from player_processes import count

from daybreak.client.client import Client
from daybreak.core.model import Done, JobSpec
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange
from daybreak.stores.sqlite import SqliteStore

pytestmark = pytest.mark.torture

FEW = 1_000
MANY = count(200_000, 1_000_000)
IN_FRONT = 100_000
ROUNDS = 40
BATCH = 10
EVERY = 5  # steps between two calls of the counter
STEPS_MAY_GROW = 1.5
PAGES_MAY_GROW = 2.5  # a tree of a million is two or three levels deeper than one of a thousand


@dataclass
class Meter:
    """What all connections of this process have cost so far."""

    steps: int = 0
    connections: list[apsw.Connection] = field(default_factory=list)

    def attach(self, connection: apsw.Connection) -> None:
        # The counters of a statement would be simpler, but for some statements they go on over executions.
        self.connections.append(connection)
        connection.set_progress_handler(self._step, EVERY)

    def _step(self) -> bool:
        self.steps += EVERY
        return False

    def read(self) -> tuple[int, int]:
        pages = 0
        for connection in self.connections:
            try:
                hit, _ = connection.status(apsw.SQLITE_DBSTATUS_CACHE_HIT)
                miss, _ = connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)
            except apsw.ConnectionClosedError:
                continue
            pages += hit + miss
        return self.steps, pages


@pytest.fixture
def meter() -> Iterator[Meter]:
    meter = Meter()
    apsw.connection_hooks.append(meter.attach)
    yield meter
    apsw.connection_hooks.remove(meter.attach)


@dataclass
class Cost:
    """Per job, averaged."""

    claim: float
    claim_pages: float
    submit: float
    submit_pages: float

    def __str__(self) -> str:
        return (
            f"claim and settle {self.claim:.0f} steps, {self.claim_pages:.1f} pages; "
            f"submit {self.submit:.0f} steps, {self.submit_pages:.1f} pages"
        )


def specs(
    n: int, *, task: str = "noop", tasks: int = 1, priority: int | None = None, **more: object
) -> Iterable[JobSpec]:
    chance = random.Random(n)
    for i in range(n):
        yield JobSpec(
            id=f"{task}-{more.get('delay', '')}-{n}-{i}",
            task=task if tasks == 1 else f"{task}{i % tasks}",
            args=b'{"n":1}',
            priority=chance.randint(0, 10) if priority is None else priority,
            **more,
        )


async def fill(store: SqliteStore, wanted: Iterable[JobSpec]) -> None:
    batch: list[JobSpec] = []
    for spec in wanted:
        batch.append(spec)
        if len(batch) == 2000:
            await store.insert(batch)
            batch = []
    await store.insert(batch)


async def cost(store: SqliteStore, meter: Meter) -> Cost:
    claim = Claim(worker="w", limit=BATCH, tasks=frozenset({("noop", 1)}), lease_for=timedelta(hours=1))
    fresh = list(specs(ROUNDS * BATCH, task="noop", priority=5))
    fresh = [JobSpec(id=f"fresh-{n}", task="noop", args=b"{}", priority=spec.priority) for n, spec in enumerate(fresh)]
    await store.exchange(Exchange(claim=claim))  # what is done once per process is not what is measured
    before = meter.read()
    for _ in range(ROUNDS):
        leases = (await store.exchange(Exchange(claim=claim))).leases
        assert len(leases) == BATCH
        done = [settle(lease, Done(b"1"), chance=0.5, by="w") for lease in leases]
        assert all((await store.exchange(Exchange(settle=done))).settled)
    between = meter.read()
    for n in range(0, len(fresh), BATCH):
        await store.insert(fresh[n : n + BATCH])
    after = meter.read()
    jobs = ROUNDS * BATCH
    return Cost(
        (between[0] - before[0]) / jobs,
        (between[1] - before[1]) / jobs,
        (after[0] - between[0]) / jobs,
        (after[1] - between[1]) / jobs,
    )


async def measured(path: Path, meter: Meter, *crowds: Iterable[JobSpec]) -> Cost:
    async with SqliteStore(path) as store:
        for crowd in crowds:
            await fill(store, crowd)
        return await cost(store, meter)


def assert_flat(few: Cost, many: Cost) -> None:
    assert few.claim > 0
    assert many.claim <= STEPS_MAY_GROW * few.claim
    assert many.submit <= STEPS_MAY_GROW * few.submit
    assert many.claim_pages <= PAGES_MAY_GROW * few.claim_pages
    assert many.submit_pages <= PAGES_MAY_GROW * few.submit_pages


async def test_a_claim_among_many_costs_what_it_costs_among_few(tmp_path, meter, tell):
    few = await measured(tmp_path / "few.db", meter, specs(FEW))
    many = await measured(tmp_path / "many.db", meter, specs(MANY))
    tell(f"a job among {FEW}: {few}; among {MANY}: {many}")
    assert_flat(few, many)


async def test_delayed_jobs_in_front_cost_nothing(tmp_path, meter, tell):
    few = await measured(tmp_path / "few.db", meter, specs(FEW))
    crowd = specs(IN_FRONT, priority=0, delay=timedelta(hours=1))
    many = await measured(tmp_path / "many.db", meter, crowd, specs(FEW))
    tell(f"a job among {FEW}: {few}; behind {IN_FRONT} delayed: {many}")
    assert_flat(few, many)


@pytest.mark.parametrize("tasks", [1, 1000])
async def test_jobs_of_unknown_tasks_in_front_cost_nothing(tmp_path, meter, tell, tasks):
    few = await measured(tmp_path / "few.db", meter, specs(FEW))
    crowd = specs(IN_FRONT, task="unknown", tasks=tasks, priority=0)
    many = await measured(tmp_path / "many.db", meter, crowd, specs(FEW))
    tell(f"a job among {FEW}: {few}; behind {IN_FRONT} of {tasks} unknown tasks: {many}")
    assert_flat(few, many)


async def test_running_jobs_under_a_limit_cost_nothing(tmp_path, meter, tell):
    few = await measured_beside_running(tmp_path / "few.db", meter, 100)
    many = await measured_beside_running(tmp_path / "many.db", meter, count(10_000, 50_000))
    tell(f"a job beside 100 running under max_running: {few}; beside {count(10_000, 50_000)}: {many}")
    assert_flat(few, many)


async def measured_beside_running(path: Path, meter: Meter, running: int) -> Cost:
    async with SqliteStore(path) as store:
        await Client(store).set_queue("default", max_running=2 * running + 1000)
        await fill(store, specs(running + FEW))
        claim = Claim(worker="other", limit=1000, lease_for=timedelta(hours=1))
        while running > 0:
            running -= len(
                (await store.exchange(Exchange(claim=structs.replace(claim, limit=min(1000, running))))).leases
            )
        return await cost(store, meter)


async def test_looking_in_vain_costs_nothing(tmp_path, meter, tell):
    """An idle worker beside many jobs that are not for it, or not yet."""
    claim = Claim(worker="w", tasks=frozenset({("noop", 1)}))
    spent = []
    for crowd in (10, IN_FRONT):
        async with SqliteStore(tmp_path / f"{crowd}.db") as store:
            await fill(store, specs(crowd, task="unknown", tasks=min(crowd, 100), priority=0))
            await fill(store, specs(crowd, priority=0, delay=timedelta(hours=1)))
            await store.exchange(Exchange(claim=claim))
            before, _ = meter.read()
            for _ in range(ROUNDS):
                assert (await store.exchange(Exchange(claim=claim))).leases == []
            spent.append((meter.read()[0] - before) / ROUNDS)
    tell(f"an empty claim: {spent[0]:.0f} steps beside 10 foreign and delayed jobs, {spent[1]:.0f} beside {IN_FRONT}")
    assert spent[1] <= STEPS_MAY_GROW * spent[0]


async def test_the_test_can_fail_a_missing_index_is_seen(tmp_path, meter, tell):
    """Planted: without the index on due times, every claim looks through all that is delayed."""
    path = tmp_path / "slow.db"
    few = await measured(tmp_path / "few.db", meter, specs(FEW))
    async with SqliteStore(path) as store:
        await fill(store, specs(10_000, priority=0, delay=timedelta(hours=1)))
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute("DROP INDEX delayed_due")
    many = await measured(path, meter, specs(FEW))
    tell(f"without its index: {many}")
    assert many.claim > STEPS_MAY_GROW * few.claim


async def test_finished_jobs_cost_nothing(tmp_path, meter, tell):
    few = await measured(tmp_path / "few.db", meter, specs(FEW))
    async with SqliteStore(tmp_path / "many.db") as store:
        await fill(store, specs(count(30_000, 300_000), task="old", priority=0))
        claim = Claim(worker="w", limit=1000, tasks=frozenset({("old", 1)}), lease_for=timedelta(hours=1))
        while leases := (await store.exchange(Exchange(claim=claim))).leases:
            done = [settle(lease, Done(b"1"), chance=0.5, by="w") for lease in leases]
            await store.exchange(Exchange(settle=done))
    many = await measured(tmp_path / "many.db", meter, specs(FEW))
    tell(f"a job among {FEW}: {few}; after {count(30_000, 300_000)} finished: {many}")
    assert_flat(few, many)

"""The plain path writes what the general path writes: whole tables are compared after the same story."""

from __future__ import annotations

import json
import random

import psycopg
import pytest
from msgspec.structs import replace
from postgres_servers import URL, drop, new_schema, with_schema

from daybreak.core.model import Caching, Done, HandedBack, Put
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim
from daybreak.stores.postgres import PostgresStore, job_tables, plain_path
from daybreak.stores.postgres.transaction import PostgresTransaction
from daybreak.testing.contract.builders import (
    LEASE,
    NOON,
    OOPS,
    SECOND,
    TWICE,
    amend,
    configure,
    exchange,
    needs,
    provide,
    spec,
)

TABLES = (
    "lane", "queue", "job", "ready", "delayed", "held", "gauge", "lease", "done", "idem", "uniq", "record", "incoming",
    "aside", "flight", "result", "room",
)  # fmt: skip
SHARED = [(), needs("plecs"), needs("plecs"), needs("plecs", disk=2)]


def dump(schema):
    """Everything that is stored, but for what may differ:

    - `waiting` and `meta` are of the processes, not of the jobs;
    - `tally` and `total` are sums of appended rows, and the plain path combines other counters in one row: the sums;
    - a row of `feed` groups equal lines of one transaction and has the number of that transaction: the events one by
      one, those of one transaction in any order (the plain path settles in the order of the leases)."""
    with psycopg.connect(URL) as db:
        db.execute(f'SET search_path = "{schema}"')
        stored = {name: sorted(map(repr, db.execute(f"SELECT * FROM {name}"))) for name in TABLES}
        stored["tally"] = db.execute(
            "SELECT lane, priority, state, sum(n) FROM tally GROUP BY 1, 2, 3 HAVING sum(n) <> 0 ORDER BY 1, 2, 3"
        ).fetchall()
        stored["feed"] = _events(db.execute("SELECT at, ids, runs, lines FROM feed ORDER BY pos").fetchall())
    return stored


def _events(rows):
    transactions = []
    for at, ids, runs, lines in rows:
        jobs = iter(ids.split("\x1f"))
        told = [
            (next(jobs), json.dumps(json.loads(line), sort_keys=True))
            for line, run in zip(lines.split("\n"), runs, strict=True)
            for _ in range(run)
        ]
        transactions.append((at, sorted(told)))
    return transactions


async def story(store, seed, *, shares):
    """Jobs of three tasks in two queues are submitted, complete, fail, are cancelled or paused, and some are claimed in
    the exchange that settles others; returns all answers. `shares`: most jobs need resources, sometimes scarce ones."""
    chance, answers, held, now = random.Random(seed), [], [], NOON
    tasks = [("a", 1), ("b", 1), ("c", 1)][: 1 + seed % 3]
    for n in range(40):
        now += SECOND * chance.randrange(3)
        jobs = [
            spec(
                chance.choice(tasks)[0], id=f"{seed} {n} {m}", queue=chance.choice(["q", "q", "q", "r"]),
                priority=chance.choice([0, 2, 2, 5]), delay=chance.choice([None] * 8 + [SECOND]),
                unique=chance.choice([None] * 8 + ["one", "two"]), key=chance.choice([None] * 8 + [f"key {n} {m}"]),
                retry=TWICE, expires_in=chance.choice([None] * 8 + [SECOND * 5]), by="me", run=f"run {n % 2}",
                **chance.choice([{}] * 8 + [{"flight": chance.choice("fg"), "cache": Caching(ttl=SECOND * 9)}]),
                **({"resources": chance.choice(SHARED)} if shares else {}),
                batch=chance.choice([None] * 8 + ["model"]),
            )
            for m in range(chance.randrange(6))
        ]  # fmt: skip
        cut = chance.randrange(len(jobs) + 1)  # some jobs come alone: that has its own statements
        parts = [jobs[:cut], *([job] for job in jobs[cut:])]
        answers += [await store.insert(part, now=now) for part in parts]
        answers.append(await store.put([Put(kind="note", name="n", value=f"{n}".encode())], now=now))
        if shares and n in (5, 15, 30):
            await provide(store, "plecs", now=now, slots={5: 1000, 15: 6, 30: 1000}[n])
        if shares and n == 35:
            await provide(store, "disk", now=now, every=SECOND, burst=4)
        if n in (20, 25):
            await configure(store, "q", max_running=30 if n == 20 else None)
        if n in (28, 32):
            await configure(store, "r", discipline="aging" if n == 28 else "fifo")
        if held and chance.random() < 0.1:
            await amend(store, "cancel", held[0].job, now=now)
        ended, held = held[: (cut := chance.randrange(len(held) + 1))], held[cut:]
        fates = [OOPS if chance.random() < 0.1 else Done(b"r" * chance.randrange(2) or None) for _ in ended]
        settled = [
            settle(lease, fate, chance=0.5, by="w", success=0.9) for lease, fate in zip(ended, fates, strict=True)
        ]
        if settled and chance.random() < 0.1:
            settled.append(settled[0])
        claim = Claim(
            worker="w", queues=("q",) if chance.random() < 0.8 else ("q", "r"), tasks=frozenset(tasks),
            limit=chance.choice([1, 4, 20]), lease_for=LEASE, call=f"call {n}", begins=chance.choice([None, 0, 2]),
        )  # fmt: skip
        answer = await exchange(store, settle=settled, claim=claim if chance.random() < 0.9 else None, now=now)
        answers.append(answer)
        held += answer.leases
    return answers


@pytest.fixture
def schemas(shared_schema):
    names = [new_schema(), new_schema()]
    yield names
    for name in names:
        drop(name)


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("seed", range(6))
async def test_the_plain_path_writes_what_the_general_path_writes(seed, shares, schemas):
    left = []
    for schema, plain in zip(schemas, (True, False), strict=True):
        async with PostgresStore(with_schema(URL, schema), connections=1, fast_path=plain) as store:
            answers = await story(store, seed, shares=shares)
            left.append((answers, {**dump(schema), "total": await store.totals()}))
    (answers, stored), (general_answers, general_stored) = left
    assert answers == general_answers
    for name, rows in stored.items():
        assert rows == general_stored[name], name


async def test_the_switch_turns_the_plain_path_off(url, monkeypatch):
    def fail(*_, **__):
        raise AssertionError("this is the plain path")

    for name in ("insert_params", "insert_one_params", "exchange_params", "put_params"):
        monkeypatch.setattr(plain_path, name, fail)
    async with PostgresStore(url, fast_path=False) as store:
        store.own_loop()
        await store.insert([spec(), spec()])
        await store.insert([spec()])
        await store.put([Put(kind="note", name="n", value=b"")])
        leases = (await exchange(store, claim=Claim(worker="w", limit=3, lease_for=LEASE), now=None)).leases
        assert len(leases) == 3


@pytest.mark.parametrize("tasks", [("a",), ("a", "b")])  # one lane and several have their own statements
async def test_a_plain_claim_leaves_jobs_with_a_claim_rule_to_the_general_path(tasks, url, monkeypatch):
    """Which jobs have one is declared in one place (`has_claim_rule`): no statement names a field of theirs."""
    chosen = []

    def heads(self, *args):
        chosen.append(args)
        return general_heads(self, *args)

    general_heads = PostgresTransaction.heads
    monkeypatch.setattr(PostgresTransaction, "heads", heads)
    monkeypatch.setattr(job_tables, "has_claim_rule", lambda spec: "rule" in spec.tags)
    claim = Claim(worker="w", limit=1, lease_for=LEASE)
    async with PostgresStore(url) as store:
        for tags, is_plain in (((), True), (("rule",), False)):
            await store.insert([spec(task, unique=task, tags=tags) for task in tasks])  # a name: not a plain insert
            chosen.clear()
            [lease] = (await exchange(store, claim=claim, now=None)).leases
            assert (not chosen) is is_plain
            back = settle(lease, HandedBack(), chance=0.5, by="w")
            await exchange(store, settle=[back], now=None)
            chosen.clear()
            leases = (await exchange(store, claim=replace(claim, limit=len(tasks)), now=None)).leases
            assert (not chosen) is is_plain, "a job that came back"
            await exchange(store, settle=[settle(one, Done(), chance=0.5, by="w") for one in leases], now=None)

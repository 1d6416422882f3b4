"""The fast path of the SQLite store writes what the kernel writes, in every table."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import apsw
import pytest

from daybreak.core.model import Caching, Done
from daybreak.policy.settle import settle
from daybreak.store.protocol import Beat, Claim
from daybreak.stores.sqlite import SqliteStore, fast_path
from daybreak.stores.sqlite.rows import unpack_totals
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

SHARED = [(), needs("plecs"), needs("plecs"), needs("plecs", disk=2)]


def dump(path):
    """Everything that the file contains."""
    db = apsw.Connection(str(path))
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    stored = {table: sorted(db.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in tables}
    stored["meta"] = [row for row in stored["meta"] if row[0] in ("seq", "revision")]  # the others differ by file
    stored["tally"] = [(*row[:4], row[4] and unpack_totals(row[4])) for row in stored["tally"]]
    return stored


def some_jobs(chance, name, tasks, *, shares):
    """New jobs, of which a few have a key, a unique name, a delay or an expiry, and a few repeat an earlier id."""
    return [
        spec(
            chance.choice(tasks)[0], id=f"{name} {m}" if chance.random() < 0.95 else f"again {chance.randrange(3)}",
            queue=chance.choice(["q", "q", "q", "r"]), priority=chance.choice([0, 2, 2, 5]),
            delay=chance.choice([None] * 8 + [SECOND]), retry=TWICE,
            expires_in=chance.choice([None] * 6 + [SECOND * 5]), by="me",
            key=chance.choice([None] * 6 + [f"key {chance.randrange(20)}"]),
            unique=chance.choice([None] * 6 + [f"name {chance.randrange(20)}"]),
            tags=chance.choice([()] * 4 + [("x",)]),
            **chance.choice([{}] * 15 + [{"flight": chance.choice("fg"), "cache": Caching(ttl=SECOND * 9)}]),
            **({"resources": chance.choice(SHARED)} if shares else {}),
        )
        for m in range(chance.randrange(6))
    ]  # fmt: skip


async def story(store, seed, *, shares):
    """Jobs of up to three tasks in two queues are submitted, report, complete, fail and are cancelled, and some are
    claimed in the exchange that settles others; returns all answers. `shares`: most jobs need resources."""
    chance, answers, held, now = random.Random(seed), [], [], NOON
    tasks = [("a", 1), ("b", 1), ("c", 1)][: 1 + seed % 3]
    for n in range(60):
        now += SECOND * chance.randrange(3)
        answers.append(await store.insert(some_jobs(chance, f"{n:03}", tasks, shares=shares), now=now))
        if shares and n in (5, 15, 30):
            await provide(store, "plecs", now=now, slots={5: 1000, 15: 6, 30: 1000}[n], max_waiting=[None, 9][n == 15])
        if shares and n == 35:
            await provide(store, "disk", now=now, every=SECOND, burst=4)
        if n in (20, 25, 40, 50):
            await configure(store, "q", max_running=30 if n == 20 else None, capacity=40 if n == 40 else None)
        if held and chance.random() < 0.1:
            await amend(store, chance.choice(["cancel", "suspend"]), held[0].job, now=now)
        if held and chance.random() < 0.2:
            beat = Beat(seq=held[-1].seq, fence=held[-1].fence, lease_for=LEASE, progress=0.5)
            answers.append(await store.extend([beat], now=now))
        ended, held = held[: (cut := chance.randrange(len(held) + 1))], held[cut:]
        fates = [OOPS if chance.random() < 0.1 else Done(b"r" * chance.randrange(2) or None) for _ in ended]
        settled = [
            settle(lease, fate, chance=0.5, by="w", success=0.9) for lease, fate in zip(ended, fates, strict=True)
        ]
        if settled and chance.random() < 0.1:
            settled.append(settled[0])
        claim = Claim(
            worker="w", queues=("q",) if chance.random() < 0.8 else ("q", "r"), tasks=frozenset(tasks),
            limit=chance.choice([1, 4, 20]), lease_for=LEASE, call=f"call {n}", begins=chance.choice([None, None, 2]),
        )  # fmt: skip
        answer = await exchange(
            store, settle=settled, insert=some_jobs(chance, f"{n:03} more", tasks, shares=shares),
            claim=claim if chance.random() < 0.9 else None, now=now,
        )  # fmt: skip
        answers.append(answer)
        held += answer.leases
    return answers


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("seed", range(12))
async def test_the_fast_path_writes_what_the_kernel_writes(seed, shares, tmp_path, monkeypatch):
    taken = Counter()
    for name in ("insert", "lease", "complete"):
        real = getattr(fast_path, name)

        def counted(*args, _name=name, _real=real, **options):
            answer = _real(*args, **options)
            taken[_name] += answer is not None
            return answer

        monkeypatch.setattr(fast_path, name, counted)
    left = []
    for is_fast in (True, False):
        path = tmp_path / f"{is_fast}.db"
        async with SqliteStore(path, threaded=False, boot="one", fast_path=is_fast) as store:
            answers = await story(store, seed, shares=shares)
        left.append((answers, dump(path)))
        if is_fast:
            assert min(taken[name] for name in ("insert", "lease", "complete")) > 3, taken
            taken.clear()
    assert not taken
    (answers, stored), (kernel_answers, kernel_stored) = left
    assert answers == kernel_answers
    assert stored == kernel_stored


async def test_lots_of_leases_ahead_of_a_lane_delete_only_what_was_leased(tmp_path):
    """The fast path deletes a prefix of a lane: a claim of one chosen job in the middle must not."""
    async with SqliteStore(tmp_path / "jobs.db", threaded=False) as store:
        await store.insert([spec("a", id=f"{n}", queue="q") for n in range(5)], now=NOON)
        claim = {"worker": "w", "queues": ("q",), "tasks": frozenset({("a", 1)}), "lease_for": timedelta(seconds=9)}
        chosen = await exchange(store, claim=Claim(**claim, limit=1, job="3"), now=NOON)
        assert [lease.job for lease in chosen.leases] == ["3"]
        others = await exchange(store, claim=Claim(**claim, limit=9), now=NOON)
        assert [lease.job for lease in others.leases] == ["0", "1", "2", "4"]

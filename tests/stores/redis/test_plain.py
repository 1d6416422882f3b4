"""The fast path of an exchange writes, byte for byte, what the general path writes."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace
from redis_servers import REDIS, connect, fresh, keys_of, need_redis

from daybreak.core.model import Caching, Done
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim
from daybreak.stores.redis import RedisStore, scripts
from daybreak.stores.redis.scripts import Script
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

FAST = scripts.EXCHANGE
GENERAL = Script("exchange", "job", "gauge", "resource_queue", "flight", "time", "put", "insert", "settle", "claim")


def dump(namespace):
    """Everything that is stored in a namespace."""
    read = {b"hash": ("HGETALL",), b"zset": ("ZRANGE", 0, -1, "WITHSCORES"), b"string": ("GET",)}
    stored = {}
    with connect() as connection:
        for key in keys_of(connection, namespace):
            command, *rest = read[connection.call(("TYPE", key))]
            found = connection.call((command, key, *rest))
            if command == "HGETALL":
                found = dict(zip(found[::2], found[1::2], strict=True))
                found.pop(b"time", None)  # the server's own
            stored[key.partition(b"}")[2]] = found
    return stored


SHARED = [(), needs("plecs"), needs("plecs"), needs("plecs", disk=2)]


def flight(chance):
    """Some jobs would compute what others compute."""
    name = chance.choice([None] * 6 + ["f", "g"])
    return {} if name is None else {"flight": name, "flight_parts": {"arguments": name}, "cache": Caching()}


async def story(store, seed, *, shares=False, flies=False):
    """Jobs of three tasks in two queues are submitted, complete, fail, are cancelled or paused, and some are claimed in
    the exchange that settles others; returns all answers. `shares`: most jobs need resources, sometimes scarce ones.
    `flies`: some jobs have a flight."""
    chance, answers, held, now = random.Random(seed), [], [], NOON
    tasks = [("a", 1), ("b", 1), ("c", 1)][: 1 + seed % 3]
    for n in range(40):
        now += SECOND * chance.randrange(3)
        jobs = [
            spec(
                chance.choice(tasks)[0], id=f"{seed} {n} {m}", queue=chance.choice(["q", "q", "q", "r"]),
                priority=chance.choice([0, 2, 2, 5]), delay=chance.choice([None] * 8 + [SECOND]),
                retry=TWICE, expires_in=chance.choice([None] * 8 + [SECOND * 5]), by="me",
                **({"resources": chance.choice(SHARED)} if shares else {}), **(flight(chance) if flies else {}),
            )
            for m in range(chance.randrange(6))
        ]  # fmt: skip
        await store.insert(jobs, now=now)
        if shares and n in (5, 15, 30):
            await provide(store, "plecs", now=now, slots={5: 1000, 15: 6, 30: 1000}[n])
        if shares and n == 35:
            await provide(store, "disk", now=now, every=SECOND, burst=4)
        if n in (20, 25):
            await configure(store, "q", max_running=30 if n == 20 else None)
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
            limit=chance.choice([1, 4, 20]), lease_for=LEASE, call=f"call {n}",
        )  # fmt: skip
        answer = await exchange(store, settle=settled, claim=claim if chance.random() < 0.9 else None, now=now)
        answers.append(answer)
        held += answer.leases
    return answers


@pytest.mark.parametrize(("shares", "flies"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("seed", range(12))
async def test_the_fast_path_of_an_exchange_writes_what_the_general_path_writes(seed, shares, flies, monkeypatch):
    need_redis()
    left = []
    for script in (FAST, GENERAL):
        monkeypatch.setattr(scripts, "EXCHANGE", script)
        with fresh() as namespace:
            async with RedisStore(REDIS, namespace=namespace) as store:
                left.append((await story(store, seed, shares=shares, flies=flies), dump(namespace)))
    (answers, stored), (general_answers, general_stored) = left
    assert answers == general_answers
    assert stored == general_stored


NOTE = 4  # in the marks of a job: which of the other hashes have something of it


@pytest.mark.parametrize("script", [FAST, GENERAL])
async def test_the_note_of_a_wait_is_gone_when_the_job_starts(script, monkeypatch):
    need_redis()
    monkeypatch.setattr(scripts, "EXCHANGE", script)
    with fresh() as namespace:
        async with RedisStore(REDIS, namespace=namespace) as store:
            await store.insert([spec("a", retry=TWICE)], now=NOON)
            claim = Claim(worker="w", tasks=frozenset({("a", 1)}), limit=1, lease_for=LEASE)
            [lease] = (await exchange(store, claim=claim, now=NOON)).leases
            noted = replace(settle(lease, OOPS, chance=0.5, by="w", success=0.9), note="later")
            await exchange(store, settle=[noted], now=NOON)
            assert marks_and_notes(namespace) == ([NOTE], [b"later"])
            assert (await exchange(store, claim=claim, now=NOON + 1000 * SECOND)).leases
            assert marks_and_notes(namespace) == ([0], [])


def marks_and_notes(namespace):
    """Of all jobs, whether they are marked to have a note, and the notes."""
    stored = dump(namespace)
    marks = [int.from_bytes(record[4:6], "little") & NOTE for record in stored[b":at"].values()]
    return marks, list(stored.get(b":note", {}).values())

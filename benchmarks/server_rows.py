"""Rows on PostgreSQL and Redis: ours, and every peer that keeps its jobs there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from benchmarks.row import Goal, Row, of_figure

Served = Literal["postgres", "redis"]
PROGRAMS = {"postgres": ("/postgres", "/initdb", "/psql"), "redis": ("/redis-server",)}
BACKLOG = {"postgres": 170_000, "redis": 220_000}  # so that more than 50,000 are left when the last urgent one starts
DRIVERS = {"postgres": "psycopg", "redis": "redis"}


@dataclass(frozen=True, kw_only=True)
class Peer:
    """How many jobs of it are enqueued one by one, in bulk (0: it has no such call) and drained, in the quick form."""

    name: str
    says: str
    enqueue: int
    bulk: int
    drain: int
    needs: tuple[str, ...] = ()
    apart: str = ""


PEERS: dict[Served, tuple[Peer, ...]] = {
    "postgres": (
        Peer(name="procrastinate", says="procrastinate -c 10", enqueue=500, bulk=5000, drain=400,
             needs=("procrastinate", "psycopg_pool")),
        Peer(name="pgqueuer", says="pgqueuer, batch 100", enqueue=1500, bulk=20_000, drain=20_000,
             needs=("pgqueuer", "asyncpg", "uvloop")),
        Peer(name="saq", says="saq on PostgreSQL", enqueue=500, bulk=0, drain=400, apart="saq"),
        Peer(name="taskito", says="taskito on PostgreSQL, batch 100", enqueue=500, bulk=5000, drain=120,
             needs=("taskito",)),
    ),
    "redis": (
        Peer(name="celery", says="celery prefork -c 2", enqueue=1000, bulk=0, drain=1200, needs=("celery", "redis")),
        Peer(name="rq", says="rq SimpleWorker", enqueue=1000, bulk=4000, drain=200, needs=("rq", "redis")),
        Peer(name="dramatiq", says="dramatiq, 8 threads", enqueue=2000, bulk=0, drain=1500,
             needs=("dramatiq", "redis")),
        Peer(name="huey", says="huey RedisHuey, 1 thread", enqueue=4000, bulk=0, drain=2000, needs=("huey", "redis")),
        Peer(name="arq", says="arq, 100 jobs, look each 10 ms", enqueue=1000, bulk=0, drain=1000, apart="arq"),
        Peer(name="saq", says="saq on Redis", enqueue=1500, bulk=0, drain=1000, apart="saq"),
        Peer(name="taskiq", says="taskiq, Redis streams", enqueue=1200, bulk=0, drain=1500,
             needs=("taskiq", "taskiq_redis", "uvloop")),
        Peer(name="streaq", says="streaq", enqueue=1200, bulk=4000, drain=700, needs=("streaq",)),
        Peer(name="bullmq", says="BullMQ, 50 jobs", enqueue=3000, bulk=20_000, drain=20_000, needs=("/node",),
             apart="bullmq"),
    ),
}  # fmt: skip


class Asked(NamedTuple):
    """What the design asks for on a store: must and aim."""

    single: tuple[float, float]
    bulk: tuple[float, float]
    drain: tuple[float, float]
    idle: tuple[float, float]
    drain_peer: str = ""  # the one that drains are held against, where it is not simply the best


ASKED: dict[Served, Asked] = {
    "postgres": Asked(single=(0.8, 1.2), bulk=(1.0, 1.3), drain=(1.2, 1.7), idle=(2.5, 1)),
    "redis": Asked(single=(0.7, 0.9), bulk=(2, 4), drain=(1.5, 2.5), idle=(1.5, 1), drain_peer="bullmq"),
}


def as_late(must: float, aim: float, what: Literal["idle", "urgent"], part: str = "") -> Goal:
    """Latencies are held against the quickest peer there is, in the same round: milliseconds alone would say how fast
    the machine was at that hour. It was at 1.0 ms, idle and urgent, when the design named its milliseconds."""
    return Goal(must=must, aim=aim, at_most=True, unit="x as late", than=f"redis huey_priority {what}", part=part)


def as_urgent() -> tuple[Goal, Goal]:
    return as_late(5, 2.5, "urgent"), as_late(13, 5, "urgent", "p99")


def server_rows(*, quick: bool) -> list[Row]:
    return [row for store in PEERS for row in _rows_of(store, quick=quick)]


def _rows_of(store: Served, *, quick: bool) -> list[Row]:
    """Rows that are compared run close together: ours among the peers of each kind."""
    times = 1 if quick else 4
    submits, drains = _submits(store, quick=quick), _drains(store, quick=quick)
    return [
        *(_peer(store, peer, "enqueue", peer.enqueue * times) for peer in PEERS[store]),
        *submits,
        *(_peer(store, peer, "bulk", peer.bulk * times) for peer in PEERS[store] if peer.bulk),
        *(_peer(store, peer, "drain", peer.drain * (times if peer.drain < 20_000 else 1)) for peer in PEERS[store]),
        *drains,
        *_latencies(store, quick=quick),
        *_care(store, quick=quick),
    ]


def _peer(store: Served, peer: Peer, what: str, jobs: int, workers: int = 1) -> Row:
    against = _against(store, what)
    if (what, peer.name) == ("drain", "celery"):
        against = "drain in processes"  # which sync tasks are held against, whatever their store
    return Row(
        name=f"{store} {peer.name} {what}" + (f", {workers} workers" if workers > 1 else ""), store=store, side="peer",
        work=f"{what} {store}/{peer.name}", jobs=jobs, options={"workers": workers} if workers > 1 else {},
        against=against if workers == 1 else f"{against} by {workers}", needs=(*peer.needs, *PROGRAMS[store]),
        apart=peer.apart, says=peer.says,
    )  # fmt: skip


def _against(store: Served, what: str) -> str:
    return f"{what} on {store}"


def _ours(store: Served, what: str, work: str, jobs: int, *goals: Goal, against: str | None = None, unit: str = "/s",
          rounds: int | None = None, **options: int) -> Row:  # fmt: skip
    return Row(
        name=f"{store} {what}", store=store, side="ours", work=work, jobs=jobs, options=options, unit=unit,
        rounds=rounds, against=against, goals=goals, needs=(DRIVERS[store], *PROGRAMS[store]),
    )  # fmt: skip


def _ratio(asked: tuple[float, float], peer: str = "") -> Goal:
    return Goal(must=asked[0], aim=asked[1], peer=peer)


# -- ours --------------------------------------------------------------------------------------------------------------


def _submits(store: Served, *, quick: bool) -> list[Row]:
    times = 1 if quick else 4
    asked, one, many = ASKED[store], _against(store, "enqueue"), _against(store, "bulk")
    return [
        _ours(store, "submit one thread", f"submit threads {store}", 1500 * times, _ratio(asked.single), against=one,
              callers=1),
        _ours(store, "submit 64 threads", f"submit threads {store}", 6000 * times, against=one, callers=64),
        _ours(store, "submit 64 tasks", f"submit tasks {store}", 6000 * times, against=one, callers=64),
        _ours(store, "submit many", f"submit many {store}", 50_000, _ratio(asked.bulk), against=many),
    ]  # fmt: skip


def _drains(store: Served, *, quick: bool) -> list[Row]:
    jobs = 20_000 if quick else 50_000
    asked, drain = ASKED[store], _against(store, "drain")
    up = [_ours(store, f"drain, {workers} up", f"crew {store}", jobs, *_not_less(store, workers), workers=workers)
          for workers in (1, 2, 4)]  # fmt: skip
    return [
        _ours(store, "drain, async", f"drain {store}/ours", jobs, _ratio(asked.drain, asked.drain_peer), against=drain),
        _ours(store, "drain, sharing", f"drain {store}/ours-sharing", jobs,
              Goal(must=0.7, aim=0.9, than=f"{store} drain, async", unit="x without")),
        _ours(store, "drain, sync", f"drain {store}/ours-sync", jobs // 2, _ratio((5, 15)),
              against="drain in processes"),
        *up,
        *([] if quick else _by_two(store, jobs)),
        *([_always(jobs)] if store == "redis" else []),
    ]  # fmt: skip


def _not_less(store: Served, workers: int) -> tuple[Goal, ...]:
    """More workers may not drain less than one."""
    return () if workers == 1 else (Goal(must=1, aim=1, than=f"{store} drain, 1 up", unit="x 1 worker"),)


def _by_two(store: Served, jobs: int) -> list[Row]:
    """Both libraries with two processes that start cold, as peers.md measured it."""
    if store != "postgres":
        return []
    [pgqueuer] = [peer for peer in PEERS[store] if peer.name == "pgqueuer"]
    theirs = _peer(store, pgqueuer, "drain", 30_000, workers=2)
    ours = _ours(store, "drain, 2 workers", f"drain {store}/ours", jobs, _ratio(ASKED[store].drain),
                 against=theirs.against, workers=2)  # fmt: skip
    return [theirs, ours]


def _always(jobs: int) -> Row:
    return _ours("redis", "drain, async, each commit synced", "drain redis-always/ours", jobs)


def _latencies(store: Served, *, quick: bool) -> list[Row]:
    rounds = 1 if quick else 3
    return [
        *(_quickest(quick=quick, rounds=rounds) if store == "redis" else []),
        _ours(store, "idle", f"idle {store}/ours", 60 if quick else 200, as_late(*ASKED[store].idle, "idle"), unit="ms",
              rounds=rounds),
        _ours(store, "urgent", f"urgent {store}/ours", 40 if quick else 50, *as_urgent(), unit="ms", rounds=rounds,
              backlog=BACKLOG[store] + (0 if quick else 50_000)),
    ]  # fmt: skip


def _quickest(*, quick: bool, rounds: int) -> list[Row]:
    """The sorted set of huey, popped one by one: who is that quick has the job in no safe place while it runs."""
    row = Row(
        name="", store="redis", side="peer", work="", jobs=60 if quick else 200, options={}, unit="ms", rounds=rounds,
        needs=("huey", "redis", *PROGRAMS["redis"]), says="huey PriorityRedisHuey, 1 thread",
    )  # fmt: skip
    name = "redis huey_priority"
    return [
        replace(row, name=f"{name} idle", work="idle redis/huey_priority", against="idle"),
        replace(
            row,
            name=f"{name} urgent",
            work="urgent redis/huey_priority",
            against="urgent",
            jobs=50,
            options={"backlog": 20_000},
        ),
    ]


def crowds(store: str) -> list[tuple[str, str, int, str, tuple[Goal, ...]]]:
    """Very many jobs at once, on every store: the name of the row, and its work."""
    swept = [of_figure(300, 100, "ms", at_most=True, of="runs ms")]
    if store == "sqlite":
        swept.append(of_figure(20_000, 40_000, "/s"))
    return [
        ("claim beside 100,000 parked", f"parked {store}", 100_000, "x as long",
         (of_figure(1.3, 1, "x as long", at_most=True),)),
        ("claim amid 100,000 of batches", f"batches {store}", 100_000, "x as long",
         (of_figure(1.2, 1, "x as long", at_most=True),
          of_figure(1.2, 1, "x as long", at_most=True, of="calls, x as long"))),
        ("lock of 10,000 waiters", f"locks {store}", 10_000, "ms", ()),
        ("sweep of 100,000", f"sweep {store}", 100_000, "/s", tuple(swept)),
        ("known result", f"hits {store}", 1000, "ms",
         (of_figure(2, 1, "ms", at_most=True), of_figure(20, 5, "ms", at_most=True, of="p99 ms"),
          of_figure(3, 1, "s", at_most=True, of="run s"))),
    ]  # fmt: skip


def seen_within() -> Goal:
    """A change by one process is seen by a client of the live feed."""
    return of_figure(250, 100, "ms", at_most=True)


def _served(store: Served, *, quick: bool) -> list[Row]:
    """The server: how soon a change is seen, and what it answers under load."""
    seen = _ours(store, "change seen", f"seen {store}", 100 if quick else 400, seen_within(), unit="ms", rounds=1)
    rows = [seen]
    if store == "postgres":
        rows.append(_ours(
            store, "server under load", f"served {store}", 30 if quick else 120,
            of_figure(150, 75, "ms", at_most=True), of_figure(190, 200, "jobs/s", of="jobs/s"),
            of_figure(16, 4, "MiB", at_most=True, of="growth MiB"), unit="ms", rounds=1,
            clients=200, requests=300, rate=200,
        ))  # fmt: skip
    return [replace(row, needs=(*row.needs, "litestar", "uvicorn")) for row in rows]


def _care(store: Served, *, quick: bool) -> list[Row]:
    many = 100_000 if quick else 1_000_000
    return [
        *_served(store, quick=quick),
        *(_ours(store, what, work, jobs, *goals, unit=unit, rounds=1)
          for what, work, jobs, unit, goals in crowds(store)),
        # Of a hundred thousand a tenth lasts less than a second, too short to judge by.
        _ours(store, f"claim amid {many:,} jobs", f"sustained {store}", many,
              *([] if quick else [of_figure(1.5, 1, "x as long", at_most=True)]), unit="x as long", rounds=1),
        _ours(store, "killed worker's job", f"recover {store}", 1 if quick else 3,
              of_figure(15, 10, "s", at_most=True, of="worst"), unit="s", rounds=1),
        _ours(store, "idle worker", f"rest {store}", 14 if quick else 20, of_figure(0.5, 0.1, "% of a core", True),
              of_figure(1, 1, "queries/s", True, "queries"), unit="% of a core", rounds=1),
    ]  # fmt: skip

"""Every row there is: what runs, how much of it, and what it is held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Side = Literal["raw", "peer", "ours"]
Against = Literal["enqueue", "bulk", "drain", "drain in processes", "idle", "urgent"]


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What the design's table asks for.

    `of` says of what: the row's own figure, the ratio to the best durable peer, or a part of what the case told."""

    must: float
    aim: float
    of: str = "ratio"
    unit: str = "x"
    at_most: bool = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """One case, run in a process and a directory of its own.

    `yardstick` is the raw row with as many jobs per durable commit, by which a loss of speed is told from a slow disk.
    `against` names the figure of the peers that the row is held against; `work` and `options` say what
    the child runs, `unit` what its figure is counted in. `rounds` is how often it runs at most: what takes long and is
    held against nobody's figure of the same round need not run in every one. `needs` are modules, and programs where a
    name starts with a slash.
    """

    name: str
    side: Side
    work: str
    jobs: int
    options: dict[str, int]
    unit: str = "/s"
    rounds: int | None = None
    yardstick: str | None = None
    against: Against | None = None
    goals: tuple[Goal, ...] = ()
    needs: tuple[str, ...] = ()
    says: str = ""


# peers.md measured drains of 2,000 to 5,000 jobs; some peers slow down with the backlog, so this favours them.
PEER_BACKLOG = 3000
DEEP = (1000, 1_000_000)
PEERS = {
    "huey": ("huey", "huey SqliteHuey"),
    "huey-process": ("huey", "huey SqliteHuey, 2 processes"),
    "litequeue": ("litequeue", "litequeue (its own NORMAL)"),
    "persist-ack": ("persistqueue", "persist-queue SQLiteAckQueue"),
    "persist-priority": ("persistqueue", "persist-queue PriorityQueue"),
    "taskito": ("taskito", "taskito (its own NORMAL)"),
    "celery": ("celery", "celery prefork -c 2 on Redis"),
}


def rows(*, quick: bool, backlog: int) -> list[Row]:
    """In the order of a round: what is held against one another stands close together in time."""
    times = 1 if quick else 4
    return [
        *_submits(times),
        *_seam(times, backlog, deep=not quick),
        *_drains(quick=quick),
        *_latencies(quick=quick),
        *_naps(quick=quick),
        *_care(quick=quick),
        *_memory(times, backlog),
    ]


# -- accepting ---------------------------------------------------------------------------------------------------------


def _submits(times: int) -> list[Row]:
    return [
        _peer("huey", "enqueue", 2500 * times),
        _peer("persist-ack", "enqueue", 2500 * times),
        _submit("sqlite", "threads", 2500 * times, "raw 1", Goal(must=0.5, aim=0.8), callers=1),
        _raw(1, 2500 * times),
        _peer("persist-priority", "enqueue", 2500 * times),
        _submit("sqlite", "tasks", 2500 * times, "raw 1", callers=1),
        _submit("sqlite", "threads", 10_000 * times, "raw 64", Goal(must=4, aim=8), callers=64),
        _submit("sqlite", "tasks", 20_000 * times, "raw 64", Goal(must=4, aim=8), callers=64),
        _raw(64, 64_000 * times),
        _submit("sqlite", "many", 50_000, "raw 1000", Goal(must=60_000, aim=120_000, of="figure", unit="/s")),
        _raw(1000, 200_000 * times),
        _peer("litequeue", "enqueue", 10_000 * times),
        _peer("taskito", "enqueue", 2500 * times),
        _peer("taskito", "bulk", 50_000),
    ]


def _submit(store: str, face: Literal["threads", "tasks", "many"], jobs: int, yardstick: str, *goals: Goal,
            **options: int) -> Row:  # fmt: skip
    callers = options.get("callers")
    how = "many" if callers is None else f"one {face.removesuffix('s')}" if callers == 1 else f"{callers} {face}"
    against: Against = "bulk" if callers is None else "enqueue"
    return Row(
        name=f"{store} submit {how}", side="ours", work=f"submit {face} {store}", jobs=jobs, options=options,
        yardstick=yardstick, against=against if store == "sqlite" else None, goals=goals,
    )  # fmt: skip


# -- claim and settle without a worker ---------------------------------------------------------------------------------


def _seam(times: int, backlog: int, *, deep: bool) -> list[Row]:
    return [
        _exchange("sqlite", 1, 2000 * times, backlog),
        _exchange("sqlite", 10, 10_000 * times, backlog),
        _raw(10, 20_000 * times),
        _exchange("sqlite", 100, 20_000 * times, backlog),
        _raw(100, 100_000 * times),
        *(_exchange("sqlite", 10, 20_000, n, name=f"sqlite exchange 10 of {n}") for n in DEEP if deep),
    ]


def _exchange(store: str, batch: int, jobs: int, backlog: int, name: str = "") -> Row:
    return Row(
        name=name or f"{store} exchange {batch}", side="ours", work=f"exchange {store}", jobs=jobs,
        options={"batch": batch, "backlog": backlog}, yardstick="raw heap" if store == "memory" else f"raw {batch}",
    )  # fmt: skip


# -- workers -----------------------------------------------------------------------------------------------------------


def _drains(*, quick: bool) -> list[Row]:
    jobs = 10_000 if quick else 30_000
    return [
        _peer("huey", "drain", PEER_BACKLOG),
        _drain("sqlite", "async", jobs, "drain", Goal(must=6, aim=12)),
        _peer("persist-ack", "drain", PEER_BACKLOG),
        _peer("celery", "drain in processes", 1500 if quick else 4000, "celery", "redis", "/redis-server"),
        _drain("sqlite-sync", "sync", jobs, "drain in processes", Goal(must=5, aim=15)),
        *([] if quick else [_peer("huey-process", "drain", PEER_BACKLOG), _peer("taskito", "drain", 1000)]),
    ]


def _drain(runner: str, kind: str, jobs: int, against: Against, goal: Goal) -> Row:
    return Row(
        name=f"sqlite drain, {kind}", side="ours", work=f"drain {runner}", jobs=jobs, options={}, against=against,
        yardstick="raw 100", goals=(goal,),
    )  # fmt: skip


def _latencies(*, quick: bool) -> list[Row]:
    p50 = {"of": "figure", "unit": "ms", "at_most": True}
    p99 = {"of": "p99", "unit": "ms", "at_most": True}
    times = {"of": "figure", "unit": "x as late", "at_most": True}
    waiting, rounds = (100_000, 1) if quick else (DEEP[1], 3)
    return [
        _latency("sqlite", "idle", 100 if quick else 200, {}, Goal(must=2, aim=1, **p50), rounds=rounds),
        _latency(
            "sqlite", "urgent", 50, {"backlog": 130_000}, Goal(must=5, aim=2.5, **p50), Goal(must=25, aim=10, **p99),
            rounds=rounds,
        ),
        *([] if quick else [_latency("huey", "idle", 200, {}, rounds=rounds)]),
        Row(
            name=f"sqlite urgent behind {waiting:,}", side="ours", work="behind", jobs=100,
            options={"waiting": waiting}, unit="x as late", rounds=1,
            # What an urgent job may wait under a backlog, and the 5 ms of the job in its way.
            goals=(Goal(must=1.5, aim=1.1, **times), Goal(must=10, aim=7.5, **{**p50, "of": "busy slot"})),
        ),
    ]  # fmt: skip


def _latency(
    runner: str, what: Literal["idle", "urgent"], jobs: int, options: dict[str, int], *goals: Goal, rounds: int
) -> Row:
    is_ours = runner == "sqlite"
    return Row(
        name=f"{runner} {what}", side="ours" if is_ours else "peer", work=f"{what} {runner}", jobs=jobs,
        options=options, unit="ms", rounds=rounds, goals=goals, against=None if is_ours else what,
        needs=() if is_ours else (PEERS[runner][0],), says="" if is_ours else PEERS[runner][1],
    )  # fmt: skip


def _naps(*, quick: bool) -> list[Row]:
    return [
        Row(
            name=f"sqlite naps of {ms} ms, {kind}", side="ours", work=f"naps {kind}", jobs=jobs // (2 if quick else 1),
            options={"ms": ms}, unit="of bare", rounds=1 if quick else 3,
            goals=(Goal(must=must, aim=aim, of="figure", unit="of bare"),),
        )
        for kind in ("async", "sync")
        for ms, jobs, must, aim in ((1, 16_000, 0.9, 0.97), (100, 400, 0.98, 0.995))
    ]  # fmt: skip


def _care(*, quick: bool) -> list[Row]:
    return [
        Row(
            name="sqlite killed worker's job", side="ours", work="recover", jobs=1 if quick else 3, options={},
            unit="s", rounds=1, goals=(Goal(must=15, aim=10, of="worst", unit="s", at_most=True),),
        ),
        Row(
            name="sqlite idle worker", side="ours", work="rest", jobs=8 if quick else 20, options={},
            unit="% of a core", rounds=1,
            goals=(
                Goal(must=0.5, aim=0.1, of="figure", unit="% of a core", at_most=True),
                Goal(must=1, aim=1, of="calls", unit="calls/s", at_most=True),
            ),
        ),
        Row(
            name="import", side="ours", work="imported", jobs=10, options={}, unit="ms", rounds=1,
            goals=(Goal(must=150, aim=100, of="figure", unit="ms", at_most=True),),
        ),
    ]  # fmt: skip


# -- in memory, and the floor ------------------------------------------------------------------------------------------


def _memory(times: int, backlog: int) -> list[Row]:
    return [
        _submit("memory", "tasks", 5000 * times, "raw heap", callers=1),
        _submit("memory", "tasks", 10_000 * times, "raw heap", callers=64),
        _submit("memory", "many", 50_000, "raw heap"),
        Row(name="raw heap", side="raw", work="bare heap", jobs=500_000 * times, options={}),
        *(_exchange("memory", batch, n * times, backlog) for batch, n in ((1, 5000), (10, 10_000), (100, 20_000))),
        Row(
            name="memory drain, async", side="ours", work="drain memory", jobs=30_000, options={},
            yardstick="raw heap", goals=(Goal(must=25_000, aim=25_000, of="figure", unit="/s"),),
        ),
    ]  # fmt: skip


def _raw(batch: int, jobs: int) -> Row:
    return Row(name=f"raw {batch}", side="raw", work="bare commit", jobs=jobs, options={"batch": batch})


def _peer(peer: str, what: Against, jobs: int, *needs: str) -> Row:
    module, says = PEERS[peer]
    return Row(
        name=f"{peer} {what}", side="peer", work=f"{what.split(maxsplit=1)[0]} {peer}", jobs=jobs, options={},
        against=what, needs=needs or (module,), says=says,
    )  # fmt: skip

"""Every row there is: what runs, how much of it, and what it is held against. Rows on servers are in server_rows.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from benchmarks.row import Goal, Row, of_figure
from benchmarks.server_rows import as_late, as_urgent, crowds, seen_within, server_rows

__all__ = ["DEEP", "Goal", "Row", "of_stores", "rows"]

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
}


def rows(*, quick: bool, backlog: int) -> list[Row]:
    """All rows in the order of a round: rows that are compared run close together in time."""
    times = 1 if quick else 4
    return [
        *_submits(times),
        *_seam(times, backlog, deep=not quick),
        *_drains(quick=quick),
        *server_rows(quick=quick),
        *_latencies(quick=quick),
        *_naps(quick=quick),
        *_care(quick=quick),
        *_memory(times, backlog),
    ]


def of_queue(must: float, aim: float) -> Goal:
    """So many jobs a second on a machine whose bare queue does 349,000, as did that of the design's table. Held against
    the bare queue of the same round, for where no peer does the same."""
    return Goal(must=must / 349_000, aim=aim / 349_000, than="raw priorities", unit="of a bare queue")


def of_stores(every: Sequence[Row], stores: Sequence[str]) -> list[Row]:
    """The rows of some stores, with the peers and bare references that those are held against wherever they are."""
    ours = [row for row in every if row.side == "ours" and row.store in (*stores, "")]
    needed = {name for row in ours for name in (row.against, row.yardstick, *(goal.than for goal in row.goals)) if name}
    return [row for row in every if row in ours or (row.side != "ours" and {row.against, row.name} & needed)]


# -- accepting ---------------------------------------------------------------------------------------------------------


def _submits(times: int) -> list[Row]:
    rate = of_queue(60_000, 120_000)
    return [
        _peer("huey", "enqueue", 2500 * times),
        _peer("persist-ack", "enqueue", 2500 * times),
        _submit("sqlite", "threads", 2500 * times, "raw 1", Goal(must=0.5, aim=0.8), callers=1),
        _raw(1, 2500 * times),
        _peer("persist-priority", "enqueue", 2500 * times),
        _submit("sqlite", "tasks", 2500 * times, "raw 1", callers=1),
        _submit("sqlite", "threads", 10_000 * times, "raw threads", Goal(must=4, aim=8), callers=64),
        Row(
            name="raw threads",
            store="sqlite",
            side="raw",
            work="bare threads",
            jobs=20_000 * times,
            options={"callers": 64},
        ),
        _submit("sqlite", "tasks", 20_000 * times, "raw 64", Goal(must=4, aim=8), callers=64),
        _raw(64, 64_000 * times),
        _submit("sqlite", "many", 50_000, "raw 1000", rate),
        _raw(1000, 200_000 * times),
        Row(name="raw priorities", store="sqlite", side="raw", work="bare priorities", jobs=200_000, options={}),
        _peer("litequeue", "enqueue", 10_000 * times),
        _peer("taskito", "enqueue", 2500 * times),
        _peer("taskito", "bulk", 50_000),
    ]


def _submit(store: str, face: Literal["threads", "tasks", "many"], jobs: int, yardstick: str, *goals: Goal,
            **options: int) -> Row:  # fmt: skip
    callers = options.get("callers")
    how = "many" if callers is None else f"one {face.removesuffix('s')}" if callers == 1 else f"{callers} {face}"
    against = "bulk" if callers is None else "enqueue"
    return Row(
        name=f"{store} submit {how}", store=store, side="ours", work=f"submit {face} {store}", jobs=jobs,
        options=options, yardstick=yardstick, against=against if store == "sqlite" else None, goals=goals,
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
        name=name or f"{store} exchange {batch}", store=store, side="ours", work=f"exchange {store}", jobs=jobs,
        options={"batch": batch, "backlog": backlog}, yardstick="raw heap" if store == "memory" else f"raw {batch}",
    )  # fmt: skip


# -- workers -----------------------------------------------------------------------------------------------------------


def _drains(*, quick: bool) -> list[Row]:
    jobs = 10_000 if quick else 30_000
    return [
        _peer("huey", "drain", PEER_BACKLOG),
        _drain("ours", "async", jobs, "drain", Goal(must=6, aim=12)),
        _sharing("sqlite", jobs),
        _peer("persist-ack", "drain", PEER_BACKLOG),
        _drain("ours-sync", "sync", jobs, "drain in processes", Goal(must=5, aim=15)),
        *([] if quick else [_peer("huey-process", "drain", PEER_BACKLOG), _peer("taskito", "drain", 1000)]),
    ]


def _drain(runner: str, kind: str, jobs: int, against: str, goal: Goal) -> Row:
    return Row(
        name=f"sqlite drain, {kind}", store="sqlite", side="ours", work=f"drain sqlite/{runner}", jobs=jobs,
        options={}, against=against, yardstick="raw 100", goals=(goal,),
    )  # fmt: skip


def _sharing(store: str, jobs: int) -> Row:
    """Every job needs a slot of one resource."""
    return Row(
        name=f"{store} drain, sharing", store=store, side="ours", work=f"drain {store}/ours-sharing", jobs=jobs,
        options={}, goals=(Goal(must=0.7, aim=0.9, than=f"{store} drain, async", unit="x without"),),
    )  # fmt: skip


def _latencies(*, quick: bool) -> list[Row]:
    waiting, rounds = (100_000, 1) if quick else (DEEP[1], 3)
    return [
        _latency("ours", "idle", 60 if quick else 200, {}, as_late(2, 1, "idle"), rounds=rounds),
        _latency("ours", "urgent", 50, {"backlog": 130_000}, *as_urgent(), rounds=rounds),
        *([] if quick else [_latency("huey", "idle", 200, {}, rounds=rounds)]),
        Row(
            name=f"sqlite urgent behind {waiting:,}", store="sqlite", side="ours", work="behind sqlite",
            jobs=60 if quick else 100, options={"waiting": waiting}, unit="x as late", rounds=1,
            # What an urgent job may wait under a backlog, and the 5 ms of the job in its way.
            goals=(
                of_figure(1.5, 1.1, "x as late", at_most=True), of_figure(10, 7.5, "ms", at_most=True, of="busy slot"),
            ),
        ),
    ]  # fmt: skip


def _latency(
    runner: str, what: Literal["idle", "urgent"], jobs: int, options: dict[str, int], *goals: Goal, rounds: int
) -> Row:
    is_ours = runner == "ours"
    return Row(
        name=f"sqlite {what}" if is_ours else f"sqlite {runner} {what}", store="sqlite",
        side="ours" if is_ours else "peer", work=f"{what} sqlite/{runner}", jobs=jobs, options=options, unit="ms",
        rounds=rounds, goals=goals, against=None if is_ours else what, needs=() if is_ours else (PEERS[runner][0],),
        says="" if is_ours else PEERS[runner][1],
    )  # fmt: skip


def _naps(*, quick: bool) -> list[Row]:
    return [
        Row(
            name=f"sqlite naps of {ms} ms, {kind}", store="sqlite", side="ours", work=f"naps {kind} sqlite",
            jobs=jobs // (2 if quick else 1), options={"ms": ms}, unit="of bare", rounds=1 if quick else 3,
            goals=(of_figure(must, aim, "of bare"),),
        )
        for kind in ("async", "sync")
        for ms, jobs, must, aim in ((1, 16_000, 0.9, 0.97), (100, 400, 0.98, 0.995))
    ]  # fmt: skip


def _care(*, quick: bool) -> list[Row]:
    return [
        *(
            Row(name=f"sqlite {what}", store="sqlite", side="ours", work=work, jobs=jobs, options={}, unit=unit,
                rounds=1, goals=goals)
            for what, work, jobs, unit, goals in crowds("sqlite")
        ),
        Row(
            name="sqlite change seen", store="sqlite", side="ours", work="seen sqlite", jobs=100 if quick else 400,
            options={}, unit="ms", rounds=1, goals=(seen_within(),), needs=("litestar", "uvicorn"),
        ),
        Row(
            name="sqlite killed worker's job", store="sqlite", side="ours", work="recover sqlite",
            jobs=1 if quick else 3, options={}, unit="s", rounds=1, goals=(of_figure(15, 10, "s", True, "worst"),),
        ),
        Row(
            name="sqlite idle worker", store="sqlite", side="ours", work="rest sqlite", jobs=14 if quick else 20,
            options={}, unit="% of a core", rounds=1,
            goals=(of_figure(0.5, 0.1, "% of a core", True), of_figure(1, 1, "calls/s", True, "calls")),
        ),
        Row(
            name="import", side="ours", work="imported", jobs=10, options={}, unit="ms", rounds=1,
            goals=(of_figure(150, 100, "ms", True),),
        ),
    ]  # fmt: skip


# -- in memory, and the floor ------------------------------------------------------------------------------------------


def _memory(times: int, backlog: int) -> list[Row]:
    return [
        _submit("memory", "tasks", 5000 * times, "raw heap", callers=1),
        _submit("memory", "tasks", 10_000 * times, "raw heap", callers=64),
        _submit("memory", "many", 50_000, "raw heap"),
        Row(name="raw heap", store="memory", side="raw", work="bare heap", jobs=500_000 * times, options={}),
        *(_exchange("memory", batch, n * times, backlog) for batch, n in ((1, 5000), (10, 10_000), (100, 20_000))),
        Row(
            name="memory drain, async", store="memory", side="ours", work="drain memory/ours", jobs=30_000, options={},
            yardstick="raw heap", goals=(of_queue(25_000, 25_000),),
        ),
    ]  # fmt: skip


def _raw(batch: int, jobs: int) -> Row:
    return Row(name=f"raw {batch}", store="sqlite", side="raw", work="bare commit", jobs=jobs, options={"batch": batch})


def _peer(peer: str, what: str, jobs: int) -> Row:
    module, says = PEERS[peer]
    return Row(
        name=f"sqlite {peer} {what}", store="sqlite", side="peer", work=f"{what} sqlite/{peer}", jobs=jobs, options={},
        against=what, needs=(module,), says=says,
    )  # fmt: skip

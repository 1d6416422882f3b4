"""Every row there is: what runs, how much of it, and what it is held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Side = Literal["raw", "peer", "ours"]


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What the design's table asks for: a multiple of the best durable peer, or jobs per second."""

    must: float
    aim: float
    unit: Literal["x", "/s"] = "x"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One case, run in a process and a directory of its own.

    `yardstick` is the raw row with as many jobs per durable commit, by which a loss of speed is told from a slow disk.
    `against` names the figure of the peers that the row is held against; `work` and `options` say what
    the child runs.
    """

    name: str
    side: Side
    work: str
    jobs: int
    options: dict[str, int]
    yardstick: str | None = None
    against: Literal["enqueue", "drain"] | None = None
    goal: Goal | None = None
    module: str | None = None
    says: str = ""


# peers.md measured drains of 2,000 to 5,000 jobs; some peers slow down with the backlog, so this favours them.
PEER_BACKLOG = 3000
DEEP = (1000, 1_000_000)
PEERS = {
    "huey": ("huey", "huey SqliteHuey"),
    "litequeue": ("litequeue", "litequeue (its own NORMAL)"),
    "persist-ack": ("persistqueue", "persist-queue SQLiteAckQueue"),
    "persist-priority": ("persistqueue", "persist-queue PriorityQueue"),
}


def rows(*, quick: bool, backlog: int) -> list[Row]:
    """In the order of a round: what is held against one another stands close together in time."""
    times = 1 if quick else 4
    return [
        *_one_per_commit(times, backlog),
        *_many_per_commit(times, backlog, deep=not quick),
        *_memory(times, backlog),
    ]


def _one_per_commit(times: int, backlog: int) -> list[Row]:
    return [
        _peer("huey", "enqueue", 2500 * times),
        _peer("persist-ack", "enqueue", 2500 * times),
        _ours("sqlite", "submit single", 2500 * times, callers=1),
        _raw(1, 2500 * times),
        _peer("persist-priority", "enqueue", 2500 * times),
        _peer("huey", "drain", PEER_BACKLOG),
        _ours("sqlite", "exchange 1", 2000 * times, batch=1, backlog=backlog),
        _peer("persist-ack", "drain", PEER_BACKLOG),
        _peer("persist-priority", "drain", PEER_BACKLOG),
    ]


def _many_per_commit(times: int, backlog: int, *, deep: bool) -> list[Row]:
    return [
        _ours("sqlite", "exchange 10", 10_000 * times, batch=10, backlog=backlog),
        _raw(10, 20_000 * times),
        _ours("sqlite", "exchange 100", 20_000 * times, batch=100, backlog=backlog),
        _raw(100, 100_000 * times),
        _ours("sqlite", "submit 64 callers", 20_000 * times, callers=64),
        _raw(64, 64_000 * times),
        _ours("sqlite", "submit 1000 callers", 40_000 * times, callers=1000),
        _raw(1000, 200_000 * times),
        _ours("sqlite", "submit bulk", 50_000),
        _peer("litequeue", "enqueue", 10_000 * times),
        _peer("litequeue", "drain", PEER_BACKLOG),
        *(_ours("sqlite", f"exchange 10 of {n}", 20_000, batch=10, backlog=n) for n in DEEP if deep),
    ]


def _memory(times: int, backlog: int) -> list[Row]:
    return [
        _ours("memory", "submit single", 10_000 * times, callers=1),
        _ours("memory", "submit 64 callers", 20_000 * times, callers=64),
        _ours("memory", "submit 1000 callers", 20_000 * times, callers=1000),
        _ours("memory", "submit bulk", 50_000),
        Row(name="raw heap", side="raw", work="heap", jobs=500_000 * times, options={}),
        _ours("memory", "exchange 1", 5000 * times, batch=1, backlog=backlog),
        _ours("memory", "exchange 10", 10_000 * times, batch=10, backlog=backlog),
        _ours("memory", "exchange 100", 20_000 * times, batch=100, backlog=backlog),
    ]


def _raw(batch: int, jobs: int) -> Row:
    return Row(name=f"raw {batch}", side="raw", work="commit", jobs=jobs, options={"batch": batch})


def _peer(peer: str, what: Literal["enqueue", "drain"], jobs: int) -> Row:
    module, says = PEERS[peer]
    return Row(
        name=f"{peer} {what}", side="peer", work=f"{peer} {what}", jobs=jobs, options={},
        against=what, module=module, says=says,
    )  # fmt: skip


_GOALS = {
    "sqlite submit single": Goal(must=0.5, aim=0.8),
    "sqlite submit 64 callers": Goal(must=4, aim=8),
    "sqlite submit bulk": Goal(must=60_000, aim=120_000, unit="/s"),
}
_YARDSTICKS = {
    "submit single": "raw 1",
    "submit 64 callers": "raw 64",
    "submit 1000 callers": "raw 1000",
    "submit bulk": "raw 1000",
    "exchange 1": "raw 1",
    "exchange 100": "raw 100",
}


def _ours(store: str, what: str, jobs: int, **options: int) -> Row:
    name = f"{store} {what}"
    work = "bulk" if what == "submit bulk" else what.split(maxsplit=1)[0]
    return Row(
        name=name, side="ours", work=f"{store} {work}", jobs=jobs, options=options,
        yardstick=_YARDSTICKS.get(what, "raw 10") if store == "sqlite" else "raw heap",
        against=("enqueue" if what.startswith("submit") else "drain") if store == "sqlite" else None,
        goal=_GOALS.get(name),
    )  # fmt: skip

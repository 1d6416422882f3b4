"""A program on uvloop, as most web servers are: callers and a worker in its loop, connections cut on the way."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from server_stores import place_on
from server_tasks import app, double, flaky, nap

uvloop = pytest.importorskip("uvloop")


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def served(request, tmp_path):
    with contextlib.ExitStack() as around:
        kind = request.param
        url = f"sqlite:///{tmp_path}/jobs.db" if kind == "sqlite" else around.enter_context(place_on(kind))
        app.use(url)
        yield kind


async def _a_working_day(kind):
    jobs = await double.asubmit_many({"n": n} for n in range(50))
    async with app.aworker(processes=1):
        assert [await job.aresult(timeout="30s") for job in jobs] == [2 * n for n in range(50)]
        assert await (await flaky.asubmit(7)).aresult(timeout="30s") == 7
        under_way = await nap.asubmit(1, 2.0)
        _cut(kind)
        assert await (await double.asubmit(4)).aresult(timeout="30s") == 8
        assert await under_way.aresult(timeout="30s") == 1
        assert (await under_way.ainfo()).attempt == 1


def _cut(kind):
    """Every connection of this process, by the server."""
    if kind == "postgres":
        import psycopg
        from postgres_servers import URL

        mine = list(_ports())
        with psycopg.connect(URL, autocommit=True) as db:
            db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE client_port = ANY(%s)", (mine,))
    elif kind == "redis":
        from redis_servers import connect

        mine = _ports()
        with connect() as connection:
            for line in connection.call(("CLIENT", "LIST")).decode().splitlines():
                about = dict(pair.partition("=")[::2] for pair in line.split())
                if int(about["addr"].rpartition(":")[2]) in mine:
                    connection.call(("CLIENT", "KILL", "ID", about["id"]))


def _ports():
    """Of this process, on this machine's loopback."""
    names = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            names.add(str(entry.readlink()))
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    found = {int(row[1].rpartition(":")[2], 16) for row in rows if f"socket:[{row[9]}]" in names}
    assert found
    return found


def test_callers_and_a_worker_live_in_its_loop(served):
    async def day():
        assert type(asyncio.get_running_loop()).__module__.startswith("uvloop")
        async with app:
            await _a_working_day(served)

    uvloop.run(asyncio.wait_for(day(), 60))

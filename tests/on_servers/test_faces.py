"""The same code on a server: submit, work, results, the command line, and a move between all stores."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from server_stores import place_on
from server_tasks import app, double, flaky, nap, plain, steps

from daybreak import Daybreak, State
from daybreak.core.errors import Unsupported

HERE = Path(__file__).parent


@pytest.fixture
def served(url):
    """The app on a server."""
    app.close()
    app.use(url)
    yield url
    app.close()


def until(holds, within=30.0):
    end = time.monotonic() + within
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def cli(url, *words, code=0):
    command = [sys.executable, "-m", "daybreak.cli", *words, "--url", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=HERE, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_work_of_every_kind_is_done(served):
    with app.worker(processes=2, lease_for="2s"):
        many = double.submit_many([{"n": n} for n in range(300)])
        others = [
            plain.submit(1),
            flaky.submit(5),
            nap.submit(7, 0.05),
            steps.submit(),
            *[plain.submit(n) for n in range(20)],
        ]
        assert [job.result(timeout="60s") for job in many] == [2 * n for n in range(300)]
        assert [job.result(timeout="60s") for job in others[:3]] == [2, 5, 7]
        others[3].result(timeout="60s")
    flaked = others[1].info()
    assert (flaked.attempt, flaked.state) == (2, State.COMPLETED)
    assert app.queue("default").stats().active == 0


def test_urgent_work_goes_first_and_a_cancelled_job_ends(served):
    low = [nap.using(priority="low").submit(n, 0.01) for n in range(50)]
    urgent = nap.using(priority="critical").submit(99, 0.0)
    with app.worker(async_jobs=1, lease_for="2s"):
        ended_at = urgent.wait(timeout="30s").finished_at
        ends = [job.wait(timeout="30s").finished_at for job in low]
        assert sum(end < ended_at for end in ends) < 25
        long = nap.submit(1, 60.0)
        until(lambda: long.state() is State.RUNNING)
        long.cancel()
        long.wait(timeout="30s")
    assert long.state() is State.CANCELLED


def test_jobs_are_found_with_values_and_who_held_them_last(served):
    with app.worker(processes=1, lease_for="2s") as worker:
        done = double.using(tags=["found"]).submit(n=21)
        assert done.result(timeout="60s") == 42
        [info] = app.find(tag="found", task=double)
        assert (info.id, info.args, info.result, info.worker) == (done.id, {"n": 21}, 42, worker.id)
        assert done.info() == info
        assert app.count(state="completed") == app.count() == 1


def test_the_command_line_works_there(served, url):
    job = plain.submit(41)
    assert job.id in cli(url, "jobs")
    assert "can be read and written" in cli(url, "doctor", code=1)
    cli(url, "worker", "server_tasks.py:app", "--until-idle")
    for word in (job.id, "last", job.id[-12:]):
        assert cli(url, "jobs", "result", word).strip() == "42"
    assert "password" not in cli(url, "workers")


STORES = ("sqlite", "postgres", "redis")


@pytest.mark.parametrize(("start", "goal"), list(itertools.permutations(STORES, 2)), ids=lambda kind: kind)
def test_a_live_store_moves_to_any_other(tmp_path, start, goal):

    with contextlib.ExitStack() as places:
        urls = [
            f"sqlite:///{tmp_path / 'jobs.db'}" if kind == "sqlite" else places.enter_context(place_on(kind))
            for kind in (start, goal)
        ]
        app.close()
        app.use(urls[0])
        done = [double.submit(n) for n in range(30)]
        app.work()
        waiting = [plain.using(key=f"k{n}", priority=n % 10).submit(n) for n in range(40)]
        later = plain.using(delay="1h").submit(1)
        app.close()
        told = cli(urls[0], "move", "--to", urls[1])
        assert "71 jobs moved" in told
        assert json.loads(cli(urls[0], "jobs", "--json"))["jobs"] == []
        app.use(urls[1])
        try:
            assert [app.job(job.id).result() for job in done] == [2 * n for n in range(30)]
            assert app.job(later.id).state() is State.SCHEDULED
            app.job(later.id).cancel()
            assert plain.using(key="k3", priority=3).submit(3).id == waiting[3].id
            app.work()
            assert [app.job(job.id).result() for job in waiting] == [n + 1 for n in range(40)]
            assert [event.kind for event in app.job(waiting[0].id).history()].count("moved") == 1
        finally:
            app.close()


class TestOwnTransaction:
    """`using(tx=...)`."""

    @pytest.fixture
    def kind(self):
        return "postgres"

    def test_a_job_is_there_once_the_transaction_commits(self, served):
        import psycopg
        from postgres_servers import URL

        plain.submit(0)  # its schema is there
        with psycopg.connect(URL) as connection:
            job = plain.using(tx=connection, key="once").submit(1)
            again = plain.using(tx=connection, priority="high").submit(2)
            connection.execute("SELECT 1")
        with psycopg.connect(URL) as connection:
            never = plain.using(tx=connection).submit(3)
            connection.rollback()
        app.work()
        assert (job.result(), again.result()) == (2, 3)
        assert app.queue("default").stats().active == 0
        with pytest.raises(Exception, match=never.id):
            never.info()

    async def test_from_async_code(self, served):
        import psycopg
        from postgres_servers import URL

        await plain.asubmit(0)
        async with await psycopg.AsyncConnection.connect(URL) as connection:
            job = await plain.using(tx=connection).asubmit(1)
        async with app.aworker(processes=1):
            assert await job.aresult(timeout="30s") == 2


def test_elsewhere_there_is_no_such_transaction(tmp_path):
    with Daybreak(f"sqlite:///{tmp_path / 'jobs.db'}") as other:

        @other.task
        def work() -> None: ...

        with pytest.raises(Unsupported, match="same PostgreSQL database; this store is sqlite"):
            work.using(tx=object()).submit()


def test_a_worker_tells_how_long_its_connections_took(served, monkeypatch):
    monkeypatch.setattr("daybreak.client.duration_stats.SYNC_INTERVAL", timedelta(milliseconds=50))
    with app.worker(processes=1):
        until(lambda: any(known.subject == "connection to the store" for known in app.stats().adaptive))

"""Behind PgBouncer in transaction mode: every transaction may run in another process of the server."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from postgres_proxy import Proxy
from postgres_servers import URL, refuse

from daybreak.core.model import Done
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange, work_topic
from daybreak.stores.postgres import PostgresStore
from daybreak.testing.contract.builders import assert_sound, spec


@pytest.fixture(scope="module")
def pooler():
    """The port of a PgBouncer with two connections to the server of the tests."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        refuse("PgBouncer is not installed: the store was not tried behind it")
    parts = urlsplit(URL)
    folder = Path(tempfile.mkdtemp(prefix="daybreak-bouncer-"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "ini").write_text(
        f"[databases]\n* = host={parts.hostname} port={parts.port or 5432}\n[pgbouncer]\nlisten_addr=127.0.0.1\n"
        f"listen_port={port}\nunix_socket_dir=\nauth_type=any\npool_mode=transaction\ndefault_pool_size=2\n"
        f"logfile={folder}/log\npidfile={folder}/pid\n"
        "[databases]\n" + f"{parts.path[1:]} = host={parts.hostname} port={parts.port or 5432} user={parts.username}\n"
    )
    command = [program, str(folder / "ini")]
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        for path in (folder, folder / "ini"):
            os.chown(path, user.pw_uid, user.pw_gid)
        command = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *command]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 10
        while True:
            try:
                psycopg.connect(
                    f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}", connect_timeout=2
                ).close()
                break
            except psycopg.OperationalError as error:
                if time.monotonic() > until:
                    log = (folder / "log").read_text() if (folder / "log").exists() else ""
                    raise AssertionError(f"{error}\n{log[-1500:]}") from None
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


async def test_a_store_behind_a_pooler_is_open_one_round_trip_after_it_is_connected(url, pooler):
    parts = urlsplit(url)
    bare = f"postgresql://{parts.username}@127.0.0.1:{pooler}{parts.path}"
    async with PostgresStore(url) as near:
        await near.insert([spec()])
    with Proxy.to(f"{bare}?{parts.query}") as proxy:
        psycopg.connect(proxy.url.partition("?")[0]).close()
        async with PostgresStore(proxy.url) as far:
            assert proxy.round_trips[1] == proxy.round_trips[0] + 1
            await far.insert([spec()])
            assert proxy.round_trips[1] == proxy.round_trips[0] + 2


async def test_work_is_done_behind_a_pooler(url, pooler):
    parts = urlsplit(url)
    through = f"postgresql://{parts.username}@127.0.0.1:{pooler}{parts.path}?{parts.query}"
    async with PostgresStore(through, connections=4) as first, PostgresStore(through, connections=4) as second:
        jobs = [spec(key=f"k{n}" if n % 3 == 0 else None, delay=timedelta() if n % 5 == 0 else None) for n in range(90)]
        await asyncio.gather(*(first.insert([job]) for job in jobs))

        async def work(store, worker):
            settling = []
            while True:
                claim = Claim(worker=worker, limit=5, lease_for=timedelta(minutes=1))
                answer = await store.exchange(Exchange(settle=settling, claim=claim))
                settling = [settle(lease, Done(), chance=0, by=worker) for lease in answer.leases]
                if not settling:
                    return

        await asyncio.gather(*(work(s, f"w{n}") for n, s in enumerate((first, second, first, second))))
        assert [tally.n for tally in await first.count()] == [90]
        await assert_sound(second, [job.id for job in jobs])
        assert first.insert_now([spec()])


async def test_a_waiting_process_behind_a_pooler_polls(url, pooler):
    parts = urlsplit(url)
    through = f"postgresql://{parts.username}@127.0.0.1:{pooler}{parts.path}?{parts.query}"
    async with PostgresStore(through) as store, PostgresStore(url) as other:
        watch = store.watch([work_topic("default")])
        await asyncio.sleep(2.5)  # until the test of LISTEN has failed
        while await watch.wait(timedelta(seconds=0.4)):
            pass
        await other.insert([spec()])
        assert await watch.wait(timedelta(seconds=2))
        watch.close()
        assert any("LISTEN does not work" in finding.what for finding in await store.examine())

"""The dashboard over a store of a million jobs: the first page, every filter of the list, a search in arguments, and an
action on 50,000 jobs. The short form has fewer jobs and judges counts only; the long form judges time too."""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from player_processes import LONG, count
from server_stores import place_on

from daybreak import Daybreak
from daybreak.client.client import Client
from daybreak.core.model import Done, Failed, Failure, JobSpec, Lease, Settlement
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange
from daybreak.system.ports import Ids, RealWorld

pytestmark = pytest.mark.torture

JOBS = count(4_000, 1_000_000)
ENDED = JOBS // 5  # that many were claimed and ended, every tenth of them failed
BULK = JOBS // 20
CHUNK = 2_000
FIRST_PAGE = 1.0  # seconds
FILTER = 0.3
PATIENCE = 600
FILTERS = {
    "state": "state=queued", "final state": "state=failed", "reason": "state=failed&reason=error",
    "queue": "queue=night", "task": "task=render", "priority": "priority=2", "run": "run=run-7",
    "owner": "owner=user-3",
    "tag": "tag=odd", "rare tag": "tag=rare", "unknown task": "task=nobody", "since": "since=1h",
    "state and queue": "state=queued&queue=night", "task and priority": "task=render&priority=7",
    "owner and state": "owner=user-3&state=failed", "since and task": "since=1h&task=render",
    "text": "text=needle-17", "text and state": "text=needle-17&state=queued",
}  # fmt: skip


def specs(new_id: Ids, start: int, stop: int) -> list[JobSpec]:
    """Jobs over three queues, tasks and priorities, with 100 runs and 50 owners; the first ones are those that end."""
    return [
        JobSpec(
            id=new_id(),
            task=("simulate", "render", "upload")[n % 3],
            args=msgspec.json.encode({"vin": n / 10, "label": f"needle-{n % 5000}"}),
            queue="done" if n < ENDED else "bulk" if n < ENDED + BULK else ("default", "night")[n % 2],
            priority=(2, 5, 7)[n // 3 % 3],
            run=f"run-{n % 100}" if n % 2 else None,
            owner=f"user-{n % 50}",
            tags=("rare",) if n == JOBS // 2 else ("odd",) if n % 2 else (),
        )
        for n in range(start, stop)
    ]  # fmt: skip


def ended(lease: Lease, n: int) -> Settlement:
    if n % 10:
        return settle(lease, Done(b"1", ran=0.5), chance=0, by="w")
    failure = Failure(message=f"matrix {n} is singular", kinds=("ValueError",), verdict="permanent")
    return settle(lease, Failed(failure, ran=0.5), chance=0, by="w")


async def fill(client: Client) -> None:
    new_id = Ids(RealWorld())
    for start in range(0, JOBS, CHUNK):
        await client.submit_many(specs(new_id, start, min(start + CHUNK, JOBS)))
    leases: list[Lease] = []
    done = 0
    while done < ENDED:
        wanted = Exchange(
            settle=[ended(lease, n) for n, lease in enumerate(leases)],
            claim=Claim(worker="w", queues=("done",), limit=CHUNK),
        )
        done += len(leases)
        leases = (await client.store.exchange(wanted)).leases


class Site:
    """`daybreak serve` on a store, and a client with the token of an administrator."""

    def __init__(self, url: str, folder: Path) -> None:
        (folder / "tasks.py").write_text(f"from daybreak import Daybreak\n\napp = Daybreak({url!r})\n")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "daybreak.cli", "serve", "tasks.py", "--port", "0"], cwd=folder,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stderr is not None
        lines = self.process.stderr.readline() + self.process.stderr.readline()
        found = re.search(r"(http://\S+?)\. ", lines)
        assert found is not None, lines
        token = subprocess.run(
            [sys.executable, "-m", "daybreak.cli", "tokens", "create", "ann", "--role", "admin", "--json"],
            env={**os.environ, "DAYBREAK_URL": url}, cwd=folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
        access = {"authorization": f"Bearer {json.loads(token.stdout)['token']}"}
        self.http = httpx.Client(base_url=found[1], timeout=PATIENCE, headers=access)

    def seconds(self, path: str) -> float:
        """The median of three looks at a page."""
        taken = []
        for _ in range(3):
            started = time.monotonic()
            assert self.http.get(path).status_code == 200, path
            taken.append(time.monotonic() - started)
        return statistics.median(taken)

    def bulk(self, body: dict[str, object]) -> dict[str, int]:
        answer = self.http.post("/api/v1/jobs/bulk", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "jobs.db")
        return
    with place_on("postgres") as url:
        yield url


@pytest.fixture
def site(url, tmp_path) -> Iterator[Site]:
    async def filled() -> None:
        app = Daybreak(url)
        await fill(await app.client())
        await app.aclose()

    asyncio.run(filled())
    site = Site(url, tmp_path)
    yield site
    site.http.close()
    site.process.kill()
    site.process.communicate()


def test_pages_and_actions_of_a_store_with_a_million_jobs(site: Site, tell: Callable[[str], None]) -> None:
    first = site.seconds("/")
    slow = {name: seconds for name, path in FILTERS.items() if (seconds := site.seconds(f"/jobs?{path}")) > FILTER}
    tell(f"{JOBS:,} jobs: first page {first:.3f} s")
    tell(f"filters over {FILTER} s: {slow or 'none'}")
    wanted = {"action": "cancel", "filter": {"queue": "bulk"}}
    shown = site.bulk({**wanted, "dry_run": True})
    started = time.monotonic()
    done = site.bulk(wanted)
    tell(f"cancelled {done['changed']:,} of {shown['matching']:,} shown in {time.monotonic() - started:.1f} s")
    assert done["changed"] == shown["matching"] == BULK
    left = site.http.get("/api/v1/queues/bulk").json()
    assert left["depth"] == 0, left
    if LONG:
        assert first < FIRST_PAGE
        assert not slow

"""Four processes submit a thousand jobs at once that would all compute the same: one runs, and all have its result.
Also if the one that leads is cancelled, removed or loses its worker."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from server_stores import place_on

from daybreak.core.model import State
from daybreak.store.protocol import CacheQuery, Store
from daybreak.stores import store_for
from daybreak.testing.contract.builders import amend, jobs_of

pytestmark = pytest.mark.torture

CLIENT = Path(__file__).with_name("flights_client.py")
JOBS = 250  # of each process
RESULT = "completed b'\"41.5\"'"


class ClientProcess:
    """A process of flights_client.py."""

    def __init__(self, role: str, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(CLIENT), role, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def hear(self, word: str) -> dict[str, Any]:
        """The next line with this word."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said: dict[str, Any] = json.loads(line)
            if said["word"] == word:
                return said
        raise AssertionError(f"the process ended without {word!r}")

    def order(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def finish(self) -> list[dict[str, Any]]:
        """Let it end, and return what it said since."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        said = [json.loads(line) for line in self._process.stdout]  # `communicate` would miss lines that are buffered
        self._process.wait(90)
        return said

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
        return
    with place_on(request.param) as place:
        yield place


@contextlib.contextmanager
def process(role: str, url: str) -> Iterator[ClientProcess]:
    started = ClientProcess(role, url)
    try:
        started.hear("ready")
        yield started
    finally:
        started.kill()


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with store_for(url) as opened:
        yield opened


@pytest.mark.parametrize("fate", ["runs", "cancelled while it waits", "cancelled while it runs", "killed", "removed"])
async def test_of_a_thousand_one_runs_and_all_have_its_result(url, store, fate, tell):
    with contextlib.ExitStack() as ending:
        submitters = [ending.enter_context(process("submitter", url)) for _ in range(4)]
        for submitter in submitters:
            submitter.order(str(JOBS))
        verdicts: Counter[str] = Counter()
        for submitter in submitters:
            verdicts.update(submitter.hear("submitted")["verdicts"])
        assert verdicts == {"new": 1, "follows": 4 * JOBS - 1}
        [leader] = await jobs_of(store, states=frozenset({State.QUEUED}))
        withdrawn, began = 0, []
        if fate in ("cancelled while it waits", "removed"):
            assert await amend(store, "cancel", leader.id, now=None) == ["done"]
            withdrawn = 1
            if fate == "removed":
                assert await amend(store, "remove", leader.id, now=None) == ["done"]
        if fate in ("cancelled while it runs", "killed"):
            first = ending.enter_context(process("worker", url))
            began.append(first.hear("began"))
            assert began[0]["job"] == leader.id
            if fate == "killed":
                first.kill()
            else:
                assert await amend(store, "cancel", leader.id, now=None) == ["requested"]
                withdrawn = 1
        workers = [ending.enter_context(process("worker", url))]
        if fate == "cancelled while it runs":
            workers.append(first)
        ends: Counter[str] = Counter()
        for submitter in submitters:
            ends.update(submitter.hear("ended")["ends"])
        began += [said for worker in workers for said in worker.finish() if said["word"] == "began"]
    lost = "gone" if fate == "removed" else "cancelled None"
    assert ends == {RESULT: 4 * JOBS - withdrawn} | ({lost: 1} if withdrawn else {})
    runs = Counter(said["job"] for said in began)
    tell(f"{4 * JOBS} jobs, {len(began)} runs, the leader {fate}")
    [entry] = (await store.cached(CacheQuery())).entries
    assert entry.hits == 4 * JOBS - withdrawn - 1
    assert runs == ({leader.id: 2} if fate == "killed" else Counter(began_of(fate, leader.id, entry.job)))


def began_of(fate: str, leader: str, computed: str) -> list[str]:
    """Which jobs ran: never more than one that counts."""
    return [leader, computed] if fate == "cancelled while it runs" else [computed]

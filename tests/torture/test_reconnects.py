"""Many clients of one server that was away: they come back spread over seconds."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from player_processes import LONG
from private_servers import PrivateServer, private_server
from worker_processes import LINES, nobody_left, read_lines, until

pytestmark = pytest.mark.torture

CLIENT = Path(__file__).with_name("reconnect_client.py")
PROCESSES, EACH = 4, 50
CLIENTS = PROCESSES * EACH
OUTAGE = 12.0  # seconds


@pytest.fixture(params=["redis", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateServer]:
    if not LONG:
        pytest.skip(
            "it judges by time: only the long form of the torture has it; tests/stores/test_backoff.py has it short"
        )
    monkeypatch.setenv(LINES, str(tmp_path / "lines"))
    with contextlib.ExitStack() as around:
        around.enter_context(nobody_left())
        if request.param == "postgres":
            pytest.importorskip("psycopg")
            import postgres_private

            flags = postgres_private.FLAGS.replace("max_connections=40", f"max_connections={5 * CLIENTS}")
            around.enter_context(mock.patch.object(postgres_private, "FLAGS", flags))
        yield around.enter_context(private_server(request.param, tmp_path))


def busiest_second(times: list[float]) -> int:
    return max(sum(1 for other in times if begin <= other < begin + 1) for begin in times)


def test_no_second_sees_more_than_a_quarter_of_the_clients_come_back(server: PrivateServer, tell) -> None:
    command = [sys.executable, str(CLIENT), server.url, str(EACH)]
    clients = [subprocess.Popen(command) for _ in range(PROCESSES)]
    try:
        until(lambda: len(read_lines(word="connected")) == CLIENTS, "all clients are connected")
        time.sleep(2)
        server.kill()
        time.sleep(OUTAGE)
        server.start()
        started_at = time.monotonic()
        until(lambda: len(read_lines(word="back")) == CLIENTS, "all clients are back", within=60)
    finally:
        for client in clients:
            client.kill()
            client.wait()
    times = [line["t"] for line in read_lines(word="back")]
    most = busiest_second(times)
    tell(
        f"{CLIENTS} clients, outage {OUTAGE:g} s: {100 * most / CLIENTS:.1f} % came back in the busiest second, "
        f"the last {max(times) - started_at:.1f} s after the server"
    )
    assert most <= CLIENTS / 4

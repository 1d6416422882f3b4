"""The example of code execution under a load of faults: pod workers and the worker are killed, outcomes are lost,
doubled and late, and the cap changes from 10 to 3 to 20. Every execution ends once, the cap holds, and nothing leaks.

The short form has 10 executions; the long form 200, and more kills."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from player_processes import count

from code_sandbox import load_run, need_nats, need_sandbox
from daybreak import State
from daybreak.feeds.bridge.channels import make_channel
from daybreak.feeds.bridge.channels.address import parse_broker
from daybreak.feeds.bridge.channels.channel import ChannelError, Outgoing, Topics

pytestmark = pytest.mark.torture

EXECUTIONS = count(10, 200)
KILLS = count(2, 8)
RAW = "outcomes.raw"


run = load_run()


class BadNetwork:
    """Carries outcomes from the pod workers to the bridge, and loses, doubles and delays some of them. The seed says
    which; of the outcomes of one job at most one is lost, so that every execution can complete."""

    def __init__(self, url: str, seed: int) -> None:
        self._address = parse_broker(url)
        self._chance = random.Random(seed)
        self._lost: set[str] = set()
        self._late: list[tuple[float, Outgoing]] = []
        self.did: Counter[str] = Counter()
        self._end = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._carry()), daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join(30)

    async def _carry(self) -> None:
        channel = make_channel(self._address, Topics(group="bad-network", incoming=RAW))
        await channel.open()
        number = 0
        with contextlib.suppress(ChannelError):
            while not self._end.is_set():
                for message in await channel.receive(50, timedelta(milliseconds=200)):
                    number += 1
                    out = Outgoing(body=message.body, id=f"carried {number}")
                    for copy in self._fate(json.loads(message.body)["job"], out):
                        await channel.publish("executions.outcomes", [copy])
                    await channel.acknowledge([message])
                due = [out for at, out in self._late if at <= time.monotonic()]
                self._late = [one for one in self._late if one[0] > time.monotonic()]
                for out in due:
                    await channel.publish("executions.outcomes", [out])
        await channel.close()

    def _fate(self, job: str, out: Outgoing) -> list[Outgoing]:
        draw = self._chance.random()
        if draw < 0.12 and job not in self._lost:
            self.did["lost"] += 1
            self._lost.add(job)
            # Long after the deadline of its attempt it comes all the same.
            self._late.append((time.monotonic() + 15, Outgoing(body=out.body, id=f"{out.id} late")))
            return []
        if draw < 0.4:
            self.did["doubled"] += 1
            self._late.append((time.monotonic() + 1, Outgoing(body=out.body, id=f"{out.id} again")))
            return [out, Outgoing(body=out.body, id=f"{out.id} twice")]
        self.did["carried"] += 1
        return [out]


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[run.Parts]:
    need_sandbox()
    need_nats()
    with contextlib.ExitStack() as around:
        broker = around.enter_context(run.nats(tmp_path))
        found = run.Parts(tmp_path, broker, around, outcomes=RAW)
        found.environment["POD_ALLOWANCE"] = "6"
        found.start_pod_worker()
        found.start_pod_worker()
        found.start_server()
        for name, role in (("ann", "submit"), ("bob", "submit"), ("root", "admin")):
            found.add_user(name, role)
        yield found


def test_every_execution_ends_once_and_the_cap_holds_whatever_is_killed_or_lost(parts, tell):
    began = time.monotonic()
    chance = random.Random(26)
    worker = parts.start_worker()
    caps = [(0.0, 0.0, 10)]
    with BadNetwork(parts.broker, 26) as network:
        names = [
            parts.submit(("ann", "bob")[n % 2], f"sleep {chance.uniform(0.1, 1.5):.2f}; echo {n}", timeout_seconds=3.0,
                         priority=("CRITICAL", "HIGH", "NORMAL", "LOW", "BACKGROUND")[n % 5])
            for n in range(EXECUTIONS)
        ]  # fmt: skip
        for number in range(KILLS):
            target = (number + 1) * EXECUTIONS // (KILLS + 2)
            parts.wait_until(lambda n=target: ended(parts) >= n or run.idle(parts), f"{target} have ended")
            if number == 0:
                caps.append(parts.set_cap(3))
            if number == max(1, KILLS // 2):
                caps.append(parts.set_cap(20))
            if number % 2:
                run.kill(worker)
                worker = parts.start_worker()
            else:
                parts.kill_pod_worker()
        run.PATIENCE = 600.0
        parts.wait_until(lambda: run.idle(parts), "all executions have ended")
        parts.wait_until(lambda: not parts.allocations.held(), "all is released")
        network_did = dict(network.did)
    found = {info.id: info for info in parts.app.find(queue="executions")}
    assert sorted(found) == sorted(names)
    used_up = {
        job.run.removeprefix("saga:").partition(".")[0]
        for job in parts.app.find(task="create_pod", state=State.FAILED)
        if job.attempt == job.max_attempts
    }
    assert len(used_up) <= 1 + EXECUTIONS // 20  # of several faults that met the same execution
    for n, name in enumerate(names):
        result = parts.result(name)
        if name not in used_up:
            assert (result["status"], result["stdout"]) == ("completed", f"{n}\n")
        finals = [
            event for event in parts.app.job(name).history() if event.kind in {"completed", "failed", "cancelled"}
        ]
        assert len(finals) == 1
    most, exceeded = parts.most_at_once(caps)
    assert exceeded == 0
    assert parts.overview()["active_count"] == 0
    parts.stop()
    assert parts.pods.running() == []
    again = sum(job.attempt > 1 for job in parts.app.find(task="create_pod"))
    tell(
        f"{EXECUTIONS} executions, {KILLS} kills, outcomes {network_did}, {again} pods created again, at most {most} "
        f"at once, {time.monotonic() - began:.0f} s"
    )


def ended(parts) -> int:
    return parts.app.count(queue="executions", state=[State.COMPLETED, State.FAILED, State.CANCELLED])

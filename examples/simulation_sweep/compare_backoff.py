"""Which backoff survives overload? Measured: many clients, and one simulator that refuses calls while it is busy.

python compare_backoff.py                  a table; about three minutes
python compare_backoff.py --clients 30 --simulation 0.1 --delay 0.25

The simulator is the stand-in, not PLECS. Times are an eighth of the article's: 8 s per simulation would be 1 s."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from daybreak import Daybreak, Retry
from daybreak.adapters.plecs import Plecs, plecs_resource
from daybreak.adapters.plecs.stand_in import Faults, StandIn

MODEL = Path(__file__).with_name("buck.plecs")


class Found(NamedTuple):
    """Of the jobs whose first attempt was refused: how many succeeded, and after how many retries on average."""

    refused_at_first: int
    succeeded: int
    mean_retries: float
    calls: int
    seconds: float


def strategies(delay: timedelta, attempts: int) -> Iterator[tuple[str, Retry, bool]]:
    for name, strategy, jitter in (
        ("constant", "fixed", 0.0),
        ("exponential", "exponential", 0.0),
        ("jittered 10 %", "jittered", 0.1),
        ("jittered 50 %", "jittered", 0.5),
        ("adaptive 50 %", "adaptive", 0.5),
    ):
        yield name, Retry(attempts=attempts, delay=delay, strategy=strategy, jitter=jitter, cap=delay * 64), False
    yield "one-slot resource", Retry(attempts=attempts, delay=delay), True


async def measure(clients: int, simulation: float, retry: Retry, *, takes_turns: bool) -> Found:
    """Submit one job for each client at once, and wait for all."""
    loop = asyncio.get_running_loop()
    with StandIn(Faults(slow=simulation)) as stand_in:
        plecs = Plecs(stand_in.address, timeout="1m")
        model = await plecs.aload(MODEL)
        async with Daybreak("memory://") as app:
            resource = plecs_resource(stand_in.address, breaker=False) if takes_turns else None

            @app.task(retry=retry, resource=resource)
            async def simulate(vin: float) -> float:
                return (await plecs.asimulate(model, {"Vi": vin}, solver={"OutputTimes": [1e-3]})).final[0]

            started = loop.time()
            jobs = await simulate.asubmit_many([{"vin": 10.0 + n} for n in range(clients)])
            async with app.aworker(async_jobs=clients):
                outcomes = [await job.aoutcome("10m") for job in jobs]
            seconds = loop.time() - started
        calls = stand_in.faults.calls
    retried = [one for one in outcomes if one.attempt > 1]
    good = [one.attempt - 1 for one in retried if one.ok]
    return Found(len(retried), len(good), sum(good) / len(good) if good else 0.0, calls, seconds)


def main() -> None:
    options = argparse.ArgumentParser(description="Measure backoff under overload.")
    options.add_argument("--clients", type=int, default=24, help="jobs that start at once (24)")
    options.add_argument("--simulation", type=float, default=0.1, help="seconds of one simulation (0.1)")
    options.add_argument("--delay", type=float, default=0.25, help="seconds before the first retry (0.25)")
    options.add_argument("--rounds", type=int, default=3, help="repetitions, added up (3)")
    given = options.parse_args()
    logging.getLogger("daybreak").setLevel(logging.CRITICAL)  # every refusal would be a line
    print(f"{given.clients} clients, {given.simulation:g} s per simulation, first delay {given.delay:g} s")
    print("attempts  strategy           success after retry  mean retries  calls  seconds")
    for attempts, rounds in itertools.product((3, 8), [given.rounds]):
        for name, retry, takes_turns in strategies(timedelta(seconds=given.delay), attempts):
            found = [
                asyncio.run(measure(given.clients, given.simulation, retry, takes_turns=takes_turns))
                for _ in range(rounds)
            ]
            refused = sum(one.refused_at_first for one in found)
            good = sum(one.succeeded for one in found)
            share = f"{good / refused:7.0%} ({good} of {refused})" if refused else "nobody was refused"
            mean = sum(one.mean_retries * one.succeeded for one in found) / good if good else 0.0
            calls, seconds = sum(one.calls for one in found) / rounds, sum(one.seconds for one in found) / rounds
            print(f"{attempts:8}  {name:17}  {share:>19}  {mean:12.2f}  {calls:5.0f}  {seconds:7.1f}", flush=True)


if __name__ == "__main__":
    main()

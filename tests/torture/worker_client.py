"""A client process that submits and waits, round after round, until its input closes: python worker_client.py URL."""

from __future__ import annotations

import sys

from worker_load import anothing, app, nothing

ROUND = 500


def main(url: str) -> None:
    app.use(url)
    print("ready", flush=True)
    for _ in sys.stdin:
        for task in (nothing, anothing):
            assert task.map(range(ROUND), timeout="5m") == list(range(ROUND))
        for task in (nothing, anothing):
            jobs = [task.submit(n) for n in range(10)]
            assert [job.result(timeout="5m") for job in jobs] == list(range(10))
        print(2 * ROUND + 20, flush=True)
    app.close()


if __name__ == "__main__":
    main(sys.argv[1])

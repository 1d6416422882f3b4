"""One submitter of tests of the spool: a process that submits numbered jobs, and writes down what was acknowledged.

python spool_client.py URL SPOOL NAME FIRST COUNT LOG"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

from daybreak import Daybreak


def main(url: str, spool: str, name: str, first: int, count: int, log: Path) -> None:
    chance = random.Random(name)
    with Daybreak(url, spool=spool) as app, log.open("a", buffering=1) as lines:

        @app.task
        def upload(name: str, number: int) -> None: ...

        for number in range(first, first + count):
            priority = chance.choice([1, 5, 5, 9])
            began = time.perf_counter()
            job = upload.using(priority=priority).submit(name, number)
            took = time.perf_counter() - began
            lines.write(
                json.dumps({"id": job.id, "name": name, "n": number, "priority": priority, "took": took}) + "\n"
            )
            time.sleep(chance.random() * 0.004)


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5]), Path(sys.argv[6]))

"""The batch task that is tortured. As a program it is the producer: `batch_load.py COUNT` submits the items, one by
one, and says so."""

from __future__ import annotations

import sys
import time

from player_processes import count
from worker_processes import write_line

from daybreak import Context, Daybreak, Resource, Retry

ITEMS = count(40, 1000)
POISON = (7, ITEMS // 2, ITEMS - 1)
SIZE = 8

app = Daybreak()
LICENCE = Resource("licence", slots=1)


# Whatever is killed, the item is not to blame: only poison may fail.
@app.batch_task(size=SIZE, retry=Retry(attempts=10_000), deaths=10_000, resource=LICENCE)
def square(ctx: Context, items: list[int]) -> list[int]:
    write_line(word="call", job=ctx.job, items=items)
    time.sleep(0.02)
    bad = [item for item in items if item in POISON]
    if bad:
        raise ValueError(f"poison: {bad}")
    return [item * item for item in items]


def main(items: int) -> None:
    for item in range(items):
        square.submit(item)
    print("submitted", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(int(sys.argv[1]))

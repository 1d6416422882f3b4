"""An app whose task prints, and registers an exit handler in its process."""

from __future__ import annotations

import atexit
import sys
import time

from worker_processes import write_line

from daybreak import Daybreak

app = Daybreak()


@app.task
def say(n: int) -> None:
    print("said", n)
    atexit.register(_goodbye, n)


@app.task
def say_much(n: int, lines: int) -> None:
    for line in range(lines):
        print("line", line, "of", n, file=sys.stdout if line % 2 else sys.stderr)


def _goodbye(n: int) -> None:
    time.sleep(0.05)
    write_line(word="goodbye", n=n)

"""Tasks that share something, for workers in processes of their own. What began stands in a file of lines."""

from __future__ import annotations

import os
import time
from pathlib import Path

from daybreak import Breaker, Daybreak, Resource, Transient

FOLDER = "SHARED_DEEDS"

app = Daybreak(name="shared")

licence = Resource("licence", slots=3)
server = Resource("server", breaker=Breaker(failures=5, successes=2, open_for="1s"))


def say(word: str) -> None:
    line = f"{time.time()} {os.getpid()} {word}\n".encode()
    with (Path(os.environ[FOLDER]) / "lines").open("ab", buffering=0) as file:
        file.write(line)


@app.task(resource=licence, retry=50, deaths=50)
def simulate(n: int, seconds: float) -> int:
    time.sleep(seconds)
    return n


@app.task(resource=server, retry=100)
def ask(n: int) -> int:
    say("asked")
    if not (Path(os.environ[FOLDER]) / "well").exists():
        raise Transient("down", retry_after="50ms")
    return n

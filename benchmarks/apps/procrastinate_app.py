"""procrastinate with ten jobs at once; finished jobs stay, as is its default."""

from __future__ import annotations

import os

from procrastinate import App, PsycopgConnector

from benchmarks.apps import portions
from benchmarks.apps.record import started
from benchmarks.stores import URL

PACKAGES = ("procrastinate", "psycopg")
WORKER = ("-m", "procrastinate", "--app", "benchmarks.apps.procrastinate_app.app", "worker", "-c", "10")

app = App(connector=PsycopgConnector(conninfo=os.environ[URL]))


@app.task(name="noop")
async def noop(n: int) -> int:
    started(n)
    return n


def prepare() -> None:
    app.open()
    app.schema_manager.apply_schema()


def enqueue(numbers: range) -> None:
    for n in numbers:
        noop.defer(n=n)


def bulk(numbers: range) -> None:
    for some in portions(numbers):
        noop.batch_defer(*({"n": n} for n in some))


def close() -> None:
    app.close()

# ruff: noqa: INP001, S603
"""Makes docs/pictures/top.svg from the real `daybreak top`: python docs/pictures/top.py"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from daybreak.cli.top.app import TopApp
from daybreak.client.client import Client
from daybreak.stores.sqlite import SqliteStore

HERE = Path(__file__).parent
SIZE = (92, 24)
TASKS = """
import time

from daybreak import Context, Daybreak

app = Daybreak("night.db")


@app.task(retry=2)
def simulate(ctx: Context, vin: float, wait: float = 0) -> float:
    ctx.progress(0.62, "steady state")
    time.sleep(wait)
    if vin > 40:
        raise ValueError(f"matrix of {vin} V is singular")
    return vin * 0.5


@app.task
def send_report(to: str) -> None:
    pass


if __name__ == "__main__":
    for n in range(9):
        simulate.using(retry=1).submit(10.0 + 4 * n)
    app.work()
    for n in range(5):
        send_report.using(queue="reports", priority="high" if n % 3 == 0 else "normal").submit(f"user{n}@example.com")
    send_report.using(delay="2h").submit("lead@example.com")
    for n in range(3):
        simulate.using(priority="low").submit(12.0 + n, wait=60)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tasks.py").write_text(TASKS)
        subprocess.run([sys.executable, "tasks.py"], cwd=folder, check=True)
        words = [sys.executable, "-m", "daybreak.cli", "worker", "tasks.py", "--queues", "default", "--processes", "2"]
        worker = subprocess.Popen(words, cwd=folder, stderr=subprocess.DEVNULL)
        try:
            svg = asyncio.run(picture(Path(folder) / "night.db"))
        finally:
            worker.kill()
            worker.wait()
    # Use the fonts of the reader's machine: a picture must not load anything from other hosts.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"terminal-\d+|terminal(?=-)", "top", svg)
    (HERE / "top.svg").write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")


async def picture(path: Path) -> str:
    """The first screen, with two jobs marked, once the worker runs jobs."""
    async with SqliteStore(path) as store:
        client = Client(store)
        while len((await client.find(state="running")).jobs) < 2:  # noqa: ASYNC110 - another process runs them
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        app = TopApp(
            client, path.name, timedelta(seconds=1), command=lambda *words: " ".join(words), start_worker=str
        )  # fmt: skip
        async with app.run_test(size=SIZE) as pilot:
            await pilot.pause(2.5)
            await pilot.press("down", "down", "down", "down", "space", "space")
            await pilot.pause(0.5)
            return app.export_screenshot(title="daybreak top")


if __name__ == "__main__":
    main()

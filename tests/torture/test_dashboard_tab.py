"""A browser tab with the dashboard, open while the store is busy: it stays live, and its memory stays bounded."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from player_processes import count, missing

from daybreak.client.client import Client
from daybreak.core.model import Done
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange
from daybreak.stores.sqlite import SqliteStore

pytestmark = pytest.mark.torture

SECONDS = count(4, 600)
EVENTS = 2_000  # in a second; a job that runs has three
BATCH = 100
MOST = 200 * 1024 * 1024  # bytes of the tab's process
PATIENCE = 120_000  # milliseconds
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
]


class Load(threading.Thread):
    """Submits and ends jobs at a steady rate, on a loop of its own: Playwright has one in the test's thread."""

    def __init__(self, file: Path) -> None:
        super().__init__(daemon=True)
        self._file = file
        self.stop = threading.Event()
        self.jobs = 0

    def run(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        async with SqliteStore(self._file) as store:
            client = Client(store, by="load")
            begun = time.monotonic()
            while not self.stop.is_set():
                await client.submit_many([client.spec("simulate", {"vin": n}) for n in range(BATCH)])
                claim = Claim(worker="w", limit=BATCH)
                leases = (await store.exchange(Exchange(claim=claim))).leases
                ends = [settle(lease, Done(b"1", ran=0.1), chance=0, by="w") for lease in leases]
                await store.exchange(Exchange(settle=ends))
                self.jobs += len(ends)
                await asyncio.sleep(max(0.0, begun + 3 * self.jobs / EVENTS - time.monotonic()))


@pytest.fixture
def address(tmp_path) -> Iterator[str]:
    (tmp_path / "tasks.py").write_text('from daybreak import Daybreak\n\napp = Daybreak("jobs.db")\n')
    command = [sys.executable, "-m", "daybreak.cli", "serve", "tasks.py", "--port", "0"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    found = re.search(r"(http://\S+?)\. ", process.stderr.readline())
    assert found is not None
    yield found[1]
    process.kill()
    process.communicate()


def memory_of_tab(browser: object) -> int:
    """The memory of the largest page process, shared pages counted in part."""
    session = browser.new_browser_cdp_session()  # type: ignore[attr-defined]
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    found = [0]
    for process in processes:
        if process["type"] == "renderer":
            text = Path(f"/proc/{process['id']}/smaps_rollup").read_text()
            found.append(int(re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)[1]) * 1024)
    return max(found)


def test_a_tab_stays_small_while_thousands_of_events_arrive(address, tmp_path, tell: Callable[[str], None]) -> None:
    program = shutil.which("chromium")
    if program is None:
        missing("chromium is not installed (Debian package chromium): no tab was watched")
    from playwright.sync_api import sync_playwright

    reported: list[str] = []
    load = Load(tmp_path / "jobs.db")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: reported.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: reported.append(str(error)))
        page.goto(f"{address}/")
        load.start()
        begun, sizes = time.monotonic(), []
        try:
            while time.monotonic() - begun < SECONDS:
                page.wait_for_timeout(min(10_000, SECONDS * 500))
                sizes.append(memory_of_tab(browser))
            # The page is still live: it shows jobs that were done while it was open.
            page.wait_for_function("document.querySelector('.cards .good b').textContent !== '0'")
        finally:
            load.stop.set()
            load.join(60)
        browser.close()
    rate = 3 * load.jobs / (time.monotonic() - begun)
    tell(
        f"{load.jobs:,} jobs, {rate:,.0f} events/s in {SECONDS} s: tab {sizes[0] >> 20} MiB at first, "
        f"{max(sizes) >> 20} MiB at most, {sizes[-1] >> 20} MiB at the end"
    )
    assert max(sizes) < MOST
    assert not reported

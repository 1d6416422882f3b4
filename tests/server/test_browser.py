"""The dashboard in a real browser: a person signs in, watches, and acts. No console error, no breach of the policy."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from saga_world import Sagas

from daybreak import Daybreak
from daybreak.client.client import Client
from daybreak.client.schedule_changes import save_schedule
from daybreak.client.schedule_record import Declaration
from daybreak.core.model import Failed, Failure, JobSpec
from daybreak.policy.schedules.timing import parse_timing
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange
from daybreak.stores.sqlite import SqliteStore

BROWSER = shutil.which("chromium")
PATIENCE = 60_000  # milliseconds; a wait that ends at once when the page is ready
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-quic", "--disable-dev-shm-usage",
]  # fmt: skip
TASKS = '''
from daybreak import Daybreak

app = Daybreak("jobs.db")


@app.task
def simulate(vin: float, label: str = "x") -> float:
    """Simulate a converter."""
    return vin
'''


STILL = """
from daybreak import Daybreak

app = Daybreak("jobs.db")


@app.task
def stands_still(vin: float) -> None:
    exec(compile("import time; time.sleep(600)", "<b>bold</b> \\x1b[31m", "exec"))
"""


@pytest.fixture(scope="module")
def browser():
    if BROWSER is None:
        reason = "chromium is not installed (Debian package chromium): the pages were not opened in a browser"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield browser
        browser.close()


class Site:
    """A server on a store of its own, as a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tasks.py").write_text(TASKS)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "daybreak.cli", "serve", "tasks.py", "--port", "0"], cwd=folder,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stderr is not None
        first, second = self.process.stderr.readline(), self.process.stderr.readline()
        found = re.search(r"(http://\S+?)\. ", first)
        assert found is not None, first
        self.address, self.link = found[1], second.rpartition(" ")[2].strip()

    def do(self, what):
        """Something that another process does with the store."""

        async def opened():
            async with SqliteStore(self.folder / "jobs.db") as store:
                return await what(Client(store, by="bob"))

        # Playwright runs an event loop in this thread.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: asyncio.run(opened())).result()

    def sagas(self, what):
        """Something that workers do with sagas."""

        async def opened():
            app = Daybreak(str(self.folder / "jobs.db"))
            try:
                await what(Sagas(app))
            finally:
                await app.aclose()

        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: asyncio.run(opened())).result()

    def submit(self, task="simulate", args=None, **options):
        return self.do(lambda client: client.submit(task, args or {"vin": 1.0}, **options))

    def state(self, job):
        return self.do(lambda client: client.get(job)).state

    def fail(self, message):
        async def run(client):
            job = await client.submit("simulate", {"vin": 1.0})
            leases = (await client.store.exchange(Exchange(claim=Claim(worker="w", limit=100)))).leases
            failure = Failed(Failure(message=message, kinds=("ValueError",), verdict="permanent"))
            mine = [settle(lease, failure, chance=0, by="w") for lease in leases if lease.job == job]
            await client.store.exchange(Exchange(settle=mine))
            return job

        return self.do(run)


@pytest.fixture
def site(tmp_path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.process.kill()
    site.process.communicate()


@pytest.fixture
def visit(browser, site):
    """Opens pages, signed in or not; at the end nothing may have been reported on the console."""
    reported, contexts = [], []

    def open_page(path="/", *, signed_in=True, **how):
        context = browser.new_context(**how)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: reported.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: reported.append(str(error)))
        if signed_in:
            page.goto(site.link)
            page.click("button")
            page.wait_for_url(f"{site.address}/")
        page.goto(site.address + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not reported


def test_a_person_watches_live_and_changes_jobs(visit, site):
    page = visit("/jobs")
    page.wait_for_selector("text=There are no jobs yet")
    first = site.submit()
    page.wait_for_selector(f'a[href="/jobs/{first}"]')  # without a reload: another process submitted it
    page.click(f'a[href="/jobs/{first}"]')
    page.wait_for_url(f"**/jobs/{first}")
    page.wait_for_load_state("load")  # the scripts listen from here on
    page.select_option("select[data-priority]", "critical")
    page.wait_for_selector("text=reprioritised")
    page.click("button:text-is('cancel')")
    page.click("#confirm-yes")
    page.wait_for_selector(".headline .state.cancelled")
    assert site.state(first) == "cancelled"


def test_a_person_sees_where_a_running_job_is(visit, site):
    job = site.submit("stands_still")
    (site.folder / "still.py").write_text(STILL)
    worker = [sys.executable, "-m", "daybreak.cli", "worker", "still.py", "--processes", "1", "--lease", "2s"]
    process = subprocess.Popen(worker, cwd=site.folder, stderr=subprocess.DEVNULL)
    try:
        page = visit("/workers")
        for path in ("/workers", f"/jobs/{job}"):
            page.goto(site.address + path)
            page.wait_for_selector("details.stack")  # without a reload: the worker has claimed it
            page.click("details.stack > summary")
            page.wait_for_selector("text=asked at")
            while "<b>bold</b>" not in page.locator("details.stack pre").inner_text():  # it had just been claimed
                page.click("button:text-is('ask again')")
                page.wait_for_timeout(200)
            told = page.locator("details.stack pre").inner_text()
            assert "\\x1b[31m" in told
            assert "Stack (most recent call last):" in told
            assert sys.platform != "linux" or re.search(r"memory [0-9.]+ MiB", told)
    finally:
        process.kill()
        process.wait()


def test_a_cluster_is_retried_after_its_count_was_confirmed(visit, site):
    failed = [site.fail(f"matrix {n} is singular") for n in range(3)]
    other = site.fail("another kind of trouble")
    page = visit("/failures")
    page.click("article:has-text('3 jobs: ValueError') button:has-text('retry these')")
    page.wait_for_selector("#confirm-text:has-text('Retry 3 jobs?')")
    page.keyboard.press("Escape")
    assert [site.state(job) for job in failed] == ["failed"] * 3, "nothing happens without a yes"
    page.click("article:has-text('3 jobs: ValueError') button:has-text('retry these')")
    page.click("#confirm-yes")
    page.wait_for_selector("text=3 of 3 changed.")
    assert [site.state(job) for job in failed] == ["queued"] * 3
    assert site.state(other) == "failed"


def test_a_queue_is_paused_and_a_job_submitted_by_a_form(visit, site):
    site.submit()
    page = visit("/queues")
    page.click("button:text-is('pause')")
    page.wait_for_selector("#confirm-text:has-text('1 job waits')")
    page.click("#confirm-yes")
    page.wait_for_selector("text=paused")
    page.goto(f"{site.address}/submit")
    page.fill('input[data-argument="vin"]', "24.5")
    page.fill('input[data-argument="label"]', "007")
    page.click("button:has-text('Submit simulate')")
    page.wait_for_selector(".headline .state.queued")
    assert '"vin": 24.5' in page.inner_text("main")
    assert '"label": "007"' in page.inner_text("main"), "a parameter that is a string stays one"


def declare_schedules(site):
    """One that ticks in the night, and one that ticks all the time."""

    async def save(client):
        job = JobSpec(id="", task="simulate")
        nightly = Declaration(timing=parse_timing(cron="30 2 * * *", tz="Europe/Berlin"), spec=job)
        await save_schedule(client, "nightly", nightly)
        await save_schedule(client, "quarters", Declaration(timing=parse_timing(every="15m"), spec=job))

    site.do(save)


def test_a_schedule_is_paused_and_run_now(visit, site):
    declare_schedules(site)
    page = visit("/schedules")
    page.wait_for_selector("text=at 02:30 every day, Europe/Berlin time")
    page.click("tr:has-text('nightly') summary")
    page.wait_for_selector("tr:has-text('nightly') li:has-text('02:30:00 CE')")
    page.click("tr:has-text('nightly') button:text-is('pause')")
    page.wait_for_selector("#confirm-text:has-text('Pause the schedule nightly?')")
    page.click("#confirm-yes")
    page.wait_for_selector("tr:has-text('nightly') .state:text-is('paused')")
    page.click("tr:has-text('quarters') button:text-is('run now')")
    page.wait_for_selector("#confirm-text:has-text('Submit a job of quarters now')")
    page.click("#confirm-yes")
    page.wait_for_selector("#notice:has-text('Done.')")
    page.click("tr:has-text('quarters') a:text-is('quarters')")
    page.wait_for_selector("main a:has-text('simulate')")


def test_a_stuck_saga_is_seen_and_resumed_by_keyboard(visit, site):
    page = visit("/jobs")
    for path in ("schedules", "sagas"):  # two pages with the same letter
        page.wait_for_load_state("load")
        page.keyboard.press("g")
        page.keyboard.press("s")
        page.wait_for_url(f"**/{path}")
    page.wait_for_selector("text=There are no sagas yet")
    site.sagas(lambda sagas: sagas.stick("order-17"))
    page.wait_for_selector("tr:has-text('order-17') .state:text-is('stuck')")  # without a reload
    page.click("a:text-is('order-17')")
    page.wait_for_selector(".timeline li.failed:has-text('undo allocate stuck')")
    page.wait_for_selector("code:text-is('daybreak sagas resume order-17')")
    page.wait_for_load_state("load")
    page.focus("button:text-is('resume')")
    page.keyboard.press("Enter")
    page.wait_for_selector("#confirm-text:has-text('Try again to undo allocate?')")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector(".headline .state:text-is('compensating')")
    site.sagas(lambda sagas: sagas.end("order-17"))
    page.wait_for_selector(".headline .state:text-is('compensated')")
    page.wait_for_selector(".timeline li.completed:has-text('undo allocate undone')")


def test_who_is_not_signed_in_can_look_and_change_nothing(visit, site):
    job = site.submit()
    page = visit(f"/jobs/{job}", signed_in=False)
    page.wait_for_selector(".headline .state.queued")
    assert page.locator("button:text-is('cancel')").count() == 0
    assert page.goto(f"{site.address}/health/live").status == 200


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_problem_of_accessibility(visit, site, scheme):
    from axe_playwright_python.sync_playwright import Axe

    failed = site.fail("matrix 7 is singular")
    site.submit()
    declare_schedules(site)
    site.sagas(lambda sagas: sagas.stick("order-17"))
    page = visit("/", color_scheme=scheme)
    for path in (
        "/", "/jobs", f"/jobs/{failed}", "/runs", "/failures", "/queues", "/schedules", "/sagas", "/sagas/order-17",
        "/workers", "/submit",
    ):  # fmt: skip
        page.goto(site.address + path)
        page.wait_for_load_state("load")
        found = Axe().run(page).response["violations"]
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        assert not serious, [(path, one["id"], [node["html"][:120] for node in one["nodes"]]) for one in serious]


def test_a_long_name_leaves_the_other_columns_in_sight(visit, site):
    async def save(client):
        slow = Declaration(timing=parse_timing(every="15m"), spec=JobSpec(id="", task="simulate"))
        await save_schedule(client, "n" * 150, slow)

    site.do(save)
    site.sagas(lambda sagas: sagas.stick("s" * 150))
    page = visit("/schedules")
    for path in ("/schedules", "/sagas"):
        page.goto(site.address + path)
        page.wait_for_selector(".list tbody tr")
        assert page.evaluate("(t => t.scrollWidth <= t.clientWidth)(document.querySelector('.scroll'))"), path


def test_a_phone_shows_pages_without_scrolling_sideways(visit, site):
    site.fail("x" * 300)
    declare_schedules(site)
    site.sagas(lambda sagas: sagas.stick("order-17", undo_error="x" * 300))
    page = visit("/jobs", viewport={"width": 390, "height": 800})
    for path in ("/", "/jobs", "/failures", "/queues", "/schedules", "/sagas", "/sagas/order-17"):
        page.goto(site.address + path)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1"), path

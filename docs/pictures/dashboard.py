# ruff: noqa: INP001, S603
"""Takes the pictures of the dashboard from the real program: `python docs/pictures/dashboard.py`, or with names only
those: `python docs/pictures/dashboard.py saga`. Needs chromium."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, ViewportSize, sync_playwright

HERE = Path(__file__).parent
TASKS = '''
import time

from daybreak import Context, Daybreak, Resource, Saga

app = Daybreak("night.db")


@app.task(resource=Resource("plecs", slots=2), retry=3)
def simulate(ctx: Context, vin: float, duty: float) -> dict:
    """Simulate a buck converter."""
    ctx.progress(0.5, "steady state")
    time.sleep(0.05)
    if vin > 40 and duty > 0.6:
        raise ValueError(f"matrix of {vin} V at {duty} is singular")
    if vin > 20 and duty == 0.1:
        raise FileNotFoundError(f"/models/buck-{vin:.0f}.plecs")
    return {"vout": vin * duty, "ripple": vin * duty * (1 - duty)}


@app.task(queue="pods")
def allocate(context: dict) -> dict:
    time.sleep(0.2)
    return {"slot": 3}


@app.task(queue="pods", retry=1)
def release(context: dict) -> None:
    if context["user"] == "eve":
        raise TimeoutError("slot 3: the manager does not answer")


@app.task(queue="pods")
def mount_volume(context: dict) -> dict:
    time.sleep(0.4)
    return {"volume": "vol-" + context["user"]}


@app.task(queue="pods")
def unmount_volume(context: dict) -> None:
    time.sleep(0.1)


@app.task(queue="pods", retry=1)
def create_pod(context: dict) -> dict:
    time.sleep(0.3)
    if context["image"] == "pyhton":
        raise ValueError("no image named 'pyhton'")
    return {"pod": context["image"] + "-" + context["user"]}


@app.task(queue="pods")
def delete_pod(context: dict) -> None:
    """Delete the pod."""


@app.task(queue="pods")
def announce(context: dict) -> None:
    """Tell whoever waits for it."""


execute = (
    Saga("execute", undo_tries=1)
    .step(allocate, undo=release)
    .step(mount_volume, undo=unmount_volume)
    .step(create_pod, undo=delete_pod)
    .step(announce)
)


if __name__ == "__main__":
    duties = [round(0.1 * n, 1) for n in range(1, 10)]
    run = app.sweep(simulate, {"vin": [10, 12, 24, 36, 48], "duty": duties}, name="overnight", priority="low")
    with app.worker(processes=2):
        run.wait(timeout="5m")
        orders = [("ann", "python"), ("bob", "pyhton"), ("dan", "python"), ("eve", "pyhton")]
        for n, (user, image) in enumerate(orders):
            execute.start({"user": user, "image": image}, id=f"order-{14 + n}").wait(timeout="1m")
    execute.start({"user": "fay", "image": "python"}, id="order-18")
    app.queue("reports").pause()
    app.queue("default").set(max_running=4)
    for n in range(12):
        simulate.using(queue="reports", priority="high" if n % 3 == 0 else "normal").submit(10.0 + n, 0.5)
    simulate.using(delay="2h").submit(12.0, 0.5)
'''
DESKTOP: ViewportSize = {"width": 1180, "height": 760}
PHONE: ViewportSize = {"width": 390, "height": 844}
PICTURES = (
    ("now", "/", "light", DESKTOP),
    ("jobs", "/jobs?state=failed", "light", DESKTOP),
    ("run", "/runs/overnight", "light", DESKTOP),
    ("failures-dark", "/failures?since=1h", "dark", DESKTOP),
    ("now-phone", "/", "light", PHONE),
    ("sagas", "/sagas", "light", DESKTOP),
    ("saga", "/sagas/order-17", "light", DESKTOP),
    ("saga-phone-dark", "/sagas/order-17", "dark", PHONE),
    ("run-phone-dark", "/runs/overnight", "dark", PHONE),
)


def main() -> None:
    browser = shutil.which("chromium")
    if browser is None:
        sys.exit("chromium is not installed: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        (Path(folder) / "tasks.py").write_text(TASKS)
        subprocess.run([sys.executable, "tasks.py"], cwd=folder, check=True)
        serve = [sys.executable, "-m", "daybreak.cli", "serve", "tasks.py", "--port", "0"]
        server = subprocess.Popen(serve, cwd=folder, stderr=subprocess.PIPE, text=True)
        try:
            assert server.stderr is not None
            server.stderr.readline()
            link = server.stderr.readline().rpartition(" ")[2].strip()
            opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
            page = opened.new_page(viewport=DESKTOP)
            page.goto(link)
            page.click("button")
            address = re.sub(r"/sign-in.*", "", link)
            for name, path, scheme, size in PICTURES:
                if sys.argv[1:] and name not in sys.argv[1:]:
                    continue
                page.emulate_media(color_scheme=scheme)
                page.set_viewport_size(size)
                take(page, address + path, HERE / f"dashboard-{name}.png")
            opened.close()
        finally:
            server.kill()
            server.communicate()


def take(page: Page, address: str, file: Path) -> None:
    """One picture, once the charts are drawn."""
    page.goto(address, wait_until="load")
    page.wait_for_timeout(1000)
    page.screenshot(path=str(file))


if __name__ == "__main__":
    main()

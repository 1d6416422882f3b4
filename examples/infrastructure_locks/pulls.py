"""Nine pull requests and two workspaces: some wait, one overtakes, one is killed. Prints and writes a report."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from pull import CASES, GAVE_UP, LOST, PROD, REFUSED, STORE

from daybreak import Daybreak, JobHandle, Priority, State
from daybreak.api.locks import Waiter

TIMEOUT = timedelta(seconds=30)  # for steps that should take much less
HERE = Path(__file__).parent


class Pull:
    """One pull request as a process. `job` is the id of its lock job, once it has requested the lock."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.job = ""
        command = [sys.executable, str(HERE / "pull.py"), str(number)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: S603 - our own

    def finish(self) -> int:
        """Its work is done; it releases the lock and ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.wait()

    def wait(self) -> int:
        return self.process.wait(TIMEOUT.total_seconds())

    def clear_away(self) -> None:
        self.process.kill()
        self.finish()


class Story:
    def __init__(self, app: Daybreak) -> None:
        self.app = app
        self.pulls: dict[int, Pull] = {}
        self.killed_at = datetime.now(UTC)

    # -- what happens --------------------------------------------------------------------------------------------------

    def tell(self) -> None:
        scene("The first one works, others wait: pending, not failed. Another workspace waits for nobody.")
        self.arrive(101)
        self.arrive(102)
        self.arrive(103, 104)
        expect(self.pulls[104].finish(), 0)

        scene("One gives up after a second.")
        self.arrive(109)
        expect(self.pulls[109].wait(), GAVE_UP)

        scene("A title alone makes no emergency: fay waits like others, gus is refused; eve is on call.")
        self.pulls[107] = Pull(107)
        self.arrive(105, 108)
        expect(self.pulls[107].wait(), REFUSED)
        self.arrive(106)
        self.show_line()

        scene("ann is done: the emergency has overtaken all. Then its process is killed (SIGKILL).")
        expect(self.pulls[101].finish(), 0)
        self.until_held_by(106)
        self.killed_at = datetime.now(UTC)
        self.pulls[106].process.kill()
        self.until_held_by(108)

        scene("hal's apply hangs. A person takes the lock away.")
        release = ["-m", "daybreak.cli", "locks", "release", PROD, "--force", "--url", STORE]
        print("  $ daybreak", *release[2:], flush=True)
        subprocess.run([sys.executable, *release], check=True)  # noqa: S603 - our own
        expect(self.pulls[108].wait(), LOST)

        scene("The others follow: the release branch, then as they came.")
        for number in (103, 102, 105):
            self.until_held_by(number)
            expect(self.pulls[number].finish(), 0)

    def arrive(self, *numbers: int) -> None:
        """Start all of them, each in its own process. Returns when each of them holds its lock or waits for it."""
        for number in numbers:
            self.pulls[number] = Pull(number)
        for number in numbers:
            self.pulls[number].job = wait_for(partial(self.seen, number, State.RUNNING, State.BLOCKED)).job

    def until_held_by(self, number: int) -> None:
        wait_for(partial(self.seen, number, State.RUNNING))

    def seen(self, number: int, *states: State) -> Waiter | None:
        """Print all holders and waiters, as the store lists them."""
        user = CASES[number].user
        return next((one for one in self.app.locks() if one.who == user and one.state in states), None)

    def show_line(self) -> None:
        for one in self.app.locks():
            where = "holds" if one.position is None else f"{one.position} before it"
            print(f"    {one.locks[0]:<24}{one.who:<5}{Priority(one.priority).name.lower():<11}{where}")

    # -- what was measured ---------------------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        asked = {number: Asked(self.app.job(pull.job)) for number, pull in self.pulls.items() if pull.job}
        granted = {number: one.grant for number, one in asked.items() if one.grant is not None}
        order = sorted(granted, key=lambda number: granted[number].at)
        return {
            "order": [number for number in order if CASES[number].lock == PROD],
            "pulls": {number: one.row() for number, one in asked.items()},
            "refused": [number for number, pull in self.pulls.items() if not pull.job],
            "never_granted": [number for number in asked if number not in granted],
            "free_after_kill": (granted[108].at - self.killed_at).total_seconds(),
            "two_at_once": sum(
                CASES[one].lock == CASES[other].lock and granted[other].at < asked[one].ended_at
                for one, other in pairwise(sorted(order, key=lambda number: CASES[number].lock))
            ),
        }


class Asked:
    """What the store recorded about one request for a lock, by the store's clock."""

    def __init__(self, job: JobHandle[Any]) -> None:
        self.job = job.info()
        history = job.history()
        self.asked_at, self.ended_at = history[0].at, history[-1].at
        self.grant = next((event for event in history if event.kind == "started"), None)

    def row(self) -> dict[str, Any]:
        until = self.ended_at if self.grant is None else self.grant.at
        return {
            "user": self.job.spec.owner,
            "priority": Priority(self.job.priority).name.lower(),
            "waited": (until - self.asked_at).total_seconds(),
            "fence": None if self.grant is None else self.grant.fence,
            "ended": self.job.state.value,
            "why": str(self.job.failure or ""),
        }


def show(report: dict[str, Any]) -> None:
    scene("Report: the lock of prod in the order in which it was granted.")
    print("  PULL  USER  PRIORITY   WAITED  FENCE  ENDED")
    for number in report["order"]:
        one = report["pulls"][number]
        told = f"{one['ended']} {one['why']}".rstrip()
        print(f"  {number}   {one['user']:<5} {one['priority']:<10} {one['waited']:5.2f}s  {one['fence']:>5}  {told}")
    print(f"  refused {report['refused']}, never granted {report['never_granted']}")
    print(f"  the next one had it {report['free_after_kill']:.2f} s after the kill, with a lease of {CASES[106].lease}")
    print(f"  two at once: {report['two_at_once']} times")


def scene(what: str) -> None:
    print(f"\n{what}", flush=True)


def expect(code: int, wanted: int) -> None:
    if code != wanted:
        sys.exit(f"a pull request ended with exit code {code}, not {wanted}")


def wait_for(condition: Callable[[], Waiter | None]) -> Waiter:
    until = time.monotonic() + TIMEOUT.total_seconds()
    while (found := condition()) is None:
        if time.monotonic() > until:
            sys.exit(f"it did not come about within {TIMEOUT}")
        time.sleep(0.02)
    return found


def main() -> None:
    with Daybreak(STORE, by="operator") as app:
        story = Story(app)
        try:
            story.tell()
            report = story.report()
        finally:
            for pull in story.pulls.values():
                pull.clear_away()
    show(report)
    Path("report.json").write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

"""All parts of the system on this machine, some users, an administrator, hostile code, and a pod worker that is killed.

python run.py                                 with NATS, which is started; nothing is left behind
python run.py --broker redis://localhost:6379 with another broker
python run.py --executions 200                more of them
python run.py --keep evening                  keep the folder: store, pods, logs
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from execution_queue import sandbox
from execution_queue.allocations import Allocations
from execution_queue.broker import Publisher
from execution_queue.events import REQUESTED, ExecutionCancelled, ExecutionRequested, message_of
from execution_queue.pods import Pods

from daybreak import Daybreak, Event
from daybreak.core.units import moment
from daybreak.events import ends_job
from daybreak.server.access.tokens import create_token

HERE: Final = Path(__file__).parent
PATIENCE: Final = 120.0  # seconds until this gives up
POD_WORKERS: Final = 2
QUICK: Final = {
    "nats": "?ack_wait=3s",
    "redis": "?claim_after=3s",
}  # how soon the commands of a killed worker come again
EXECUTIONS: Final = "executions"
ENDS: Final = frozenset({"retrying", "released", "suspended"})  # of an attempt, beside those of a job

HOSTILE: Final = {
    "a fork bomb": ("bash", ":(){ :|:& };:\nsleep 30"),
    "a file of 10 GB": ("bash", "head -c 10G /dev/zero > /code/big || exit 7"),
    "the network": ("python", "import socket\nsocket.create_connection(('127.0.0.1', 80), 2)"),
    "files of the host": ("bash", "cat /etc/passwd || exit 8"),
    "its environment": ("bash", "cat /proc/*/environ | tr '\\0' '\\n' | grep -E 'STORE|BROKER' && exit 0; exit 9"),
    "endless output": ("bash", "yes"),
    "endless sleep": ("bash", "sleep 1000"),
    "the end of all": ("bash", "kill -9 -1; kill -9 1; kill -9 $PPID; exit 10"),
}


class Parts:
    """The processes of the system, their folder, and the server as its users see it."""

    def __init__(self, folder: Path, broker: str, around: contextlib.ExitStack, *, outcomes: str = "") -> None:
        self.folder = folder
        self.broker = broker
        self._quick = QUICK.get(broker.partition("://")[0], "")
        self._outcomes = ["--outcomes", outcomes] if outcomes else []
        self._around = around
        self._pod_workers: list[subprocess.Popen[bytes]] = []
        self.pods = Pods(folder / "pods")
        self.allocations = Allocations(folder / "allocations.db", 64 * 1024)
        self.store = str(folder / "executions.db")
        self.app = Daybreak(self.store, by="run.py")
        around.callback(self.app.close)
        self.tokens: dict[str, str] = {}
        self.address = ""
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DAYBREAK_")},
            "STORE": self.store, "BROKER": broker, "ALLOCATIONS": str(folder / "allocations.db"),
            "POD_ALLOWANCE": "20",
        }  # fmt: skip

    # -- processes -----------------------------------------------------------------------------------------------------

    def start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a program, with its log in the folder. It is killed at the end, if it has not ended before."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, *words], cwd=HERE, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        self._around.callback(kill, process)
        return process

    def start_worker(self) -> subprocess.Popen[bytes]:
        return self.start(
            "worker", "-m", "daybreak.cli", "worker", "executions.py", "--processes", "1", "--lease", "3s"
        )

    def start_server(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self.start("server", "serve.py", "--port", str(port))
        self.wait_until(self._answers, "the server answers")

    def start_pod_worker(self) -> subprocess.Popen[bytes]:
        process = self.start(
            "pod-workers", "pod_worker.py", "--broker", self.broker + self._quick, "--pods", str(self.folder / "pods"),
            "--hold-every", "0.5", *self._outcomes,
        )  # fmt: skip
        self._pod_workers.append(process)
        return process

    def kill_pod_worker(self) -> None:
        """Kill the one that has run for longest, and start another."""
        kill(self._pod_workers.pop(0))
        self.start_pod_worker()

    def stop(self) -> None:
        """End the pod workers as a person does."""
        for process in self._pod_workers:
            process.terminate()
        for process in self._pod_workers:
            process.wait(20)

    # -- users ---------------------------------------------------------------------------------------------------------

    def add_user(self, name: str, role: str) -> None:
        async def create() -> str:
            client = await self.app.client()
            return (await create_token(client.store, name, [role], now=moment(client.wall())))[1]

        self.tokens[name] = self.app.portal.run(create())

    def ask(self, user: str, method: str, path: str, body: object = None) -> Any:
        """What the server answers; an HTTPError for everything from 400 on."""
        request = urllib.request.Request(  # noqa: S310
            self.address + path, method=method, data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.tokens[user]}", "Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
            return json.loads(reply.read() or b"null")

    def submit(self, user: str, script: str, language: str = "bash", **more: Any) -> str:
        answer = self.ask(user, "POST", "/api/v1/execute", {"script": script, "language": language, **more})
        return str(answer["execution_id"])

    def publish(self, event: ExecutionRequested | ExecutionCancelled, id_: str) -> None:
        """Send an event to the topic, as another system would."""

        async def send() -> None:
            publisher = Publisher(self.broker)
            try:
                await publisher.publish(REQUESTED, message_of(event, id_))
            finally:
                await publisher.close()

        asyncio.run(send())

    def result(self, execution: str) -> dict[str, Any]:
        return dict(self.ask("root", "GET", f"/api/v1/executions/{execution}/result"))

    def follow(self, user: str, execution: str) -> Iterator[tuple[float, str, dict[str, Any]]]:
        """The live stream of an execution: when each message came, its type and its data."""
        request = urllib.request.Request(  # noqa: S310
            f"{self.address}/api/v1/events/executions/{execution}",
            headers={"Authorization": f"Bearer {self.tokens[user]}"},
        )
        kind = ""
        with urllib.request.urlopen(request, timeout=60) as stream:  # noqa: S310
            for line in stream:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    yield time.monotonic(), kind, json.loads(value)

    def overview(self) -> dict[str, Any]:
        return dict(self.ask("root", "GET", "/api/v1/admin/executions/queue"))

    def set_cap(self, cap: int) -> tuple[float, float, int]:
        """Change the cap. Returns between which times it changed."""
        before = time.time()
        self.ask("root", "PUT", "/api/v1/admin/settings", {"max_concurrent_executions": cap})
        return before, time.time(), cap

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.address}/health/live", timeout=5).close()  # noqa: S310
        except OSError:
            return False
        return True

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                logs = "".join(f"\n--- {path.name}\n{path.read_text()[-2500:]}" for path in self.folder.glob("*.log"))
                sys.exit(f"not within {PATIENCE:g} s: {what}{logs}")
            time.sleep(0.05)

    # -- afterwards ----------------------------------------------------------------------------------------------------

    def most_at_once(self, caps: list[tuple[float, float, int]]) -> tuple[int, int]:
        """From the event log: how many executions ran at once at most, and how often one started although the cap was
        reached. `caps` are the changes of the cap, with the times between which they happened."""

        async def read() -> list[Event]:
            store, found, cursor = (await self.app.client()).store, [], None
            while (page := await store.events(cursor)).events:
                found += page.events
                cursor = page.cursor
            return found

        running: set[str] = set()
        most = exceeded = 0
        mine: set[str] = set()
        for event in self.app.portal.run(read()):
            if event.kind == "submitted" and event.queue == EXECUTIONS:
                mine.add(event.job)
            if event.job not in mine:
                continue
            if event.kind == "started":
                allowed = allowed_at(event.at.timestamp(), caps)
                exceeded += len(running) >= allowed
                running.add(event.job)
                most = max(most, len(running))
            elif ends_job(event) or event.kind in ENDS:
                running.discard(event.job)
        return most, exceeded


def allowed_at(at: float, caps: list[tuple[float, float, int]]) -> int:
    """The cap at a time; while it changed, the higher one."""
    allowed = caps[0][2]
    for before, after, cap in caps[1:]:
        if at >= after:
            allowed = cap
        elif at >= before:
            allowed = max(allowed, cap)
    return allowed


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a program with all its children, as a machine that loses its power."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def nats(folder: Path) -> Iterator[str]:
    """A NATS server of our own."""
    program = shutil.which("nats-server", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if program is None:
        sys.exit("nats-server is not installed: apt-get install nats-server, or name a broker with --broker")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder / "nats")]
    with (folder / "nats.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)  # noqa: S603
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            time.sleep(0.05)
        yield f"nats://127.0.0.1:{port}"
    finally:
        kill(process)


# -- the story ---------------------------------------------------------------------------------------------------------


def story(parts: Parts, number: int) -> int:
    began = time.monotonic()
    parts.start_worker()
    for _ in range(POD_WORKERS):
        parts.start_pod_worker()
    parts.start_server()
    for name, role in (("ann", "submit"), ("bob", "submit"), ("root", "admin")):
        parts.add_user(name, role)

    live = parts.submit("ann", "for n in 1 2 3; do echo line $n; sleep 0.4; done", priority="CRITICAL")
    seen = list(parts.follow("ann", live))
    lines = [at for at, kind, _ in seen if kind == "output"]
    print(
        f"live output       {len(lines)} messages, the first {lines[-1] - lines[0]:.1f} s before the last", flush=True
    )

    caps = [(0.0, 0.0, 10)]
    wrong = {
        what: parts.submit("bob", code, language, timeout_seconds=2.0) for what, (language, code) in HOSTILE.items()
    }
    long = [parts.submit("ann", "sleep 4; echo done", priority="HIGH") for _ in range(2)]
    names = ("LOW", "BACKGROUND", "NORMAL")
    for n in range(number):
        parts.submit(("ann", "bob")[n % 2], f"sleep 0.{n % 3}; echo {n}", priority=names[n % 3])
    by_topic = [str(uuid.uuid4()) for _ in range(4)]
    for name in (*by_topic, by_topic[0]):  # the first one comes twice
        request = ExecutionRequested(execution_id=name, script="echo from a topic", language="bash", user_id="shop")
        parts.publish(request, f"{name} {time.monotonic()}")
    total = 1 + len(wrong) + len(long) + number + len(by_topic)
    parts.wait_until(lambda: listed(parts) == total, "all executions are accepted")

    parts.wait_until(lambda: running_pods(parts) >= POD_WORKERS, "pods run")
    parts.kill_pod_worker()
    caps.append(parts.set_cap(3))
    cancelled = long[0]
    parts.ask("ann", "POST", f"/api/v1/executions/{cancelled}/cancel", {"reason": "changed my mind"})
    parts.wait_until(lambda: listed(parts, status="queued") < total // 2, "half of them have started")
    caps.append(parts.set_cap(20))
    parts.wait_until(lambda: idle(parts), "all executions have ended")
    parts.wait_until(lambda: not parts.allocations.held() and not parts.pods.running(), "all is released")
    seconds = time.monotonic() - began
    contained = {what: parts.result(name) for what, name in wrong.items()}
    most, exceeded = parts.most_at_once(caps)
    parts.stop()
    return summary(parts, total, contained, (cancelled, by_topic), (most, exceeded), seconds)


def summary(
    parts: Parts,
    total: int,
    contained: dict[str, dict[str, Any]],
    special: tuple[str, list[str]],
    at_once: tuple[int, int],
    seconds: float,
) -> int:
    cancelled, by_topic = special
    found = list(parts.app.find(queue=EXECUTIONS))
    states = Counter(info.state.value for info in found)
    again = sum(job.attempt > 1 for job in parts.app.find(task="create_pod"))
    most, exceeded = at_once
    print(f"executions        {len(found)}: {', '.join(f'{n} {state}' for state, n in sorted(states.items()))}")
    print(f"cap               10, then 3, then 20; at most {most} at once, {exceeded} started above the cap")
    print(f"pod worker        killed once; {again} pods were created again")
    for what, result in contained.items():
        how = result["error"] or f"exit code {result['exit_code']}"
        print(f"hostile           {what}: {result['status']}: {how[:70]}")
    print(f"left              {len(parts.allocations.held())} allocations, {len(parts.pods.running())} pods")
    print(f"time              {seconds:.0f} s")
    is_good = (
        len(found) == total
        and exceeded == 0
        and all(result["status"] in {"failed", "timeout"} for result in contained.values())
        and not any("root:" in result["stdout"] for result in contained.values())
        and parts.result(cancelled)["status"] == "cancelled"
        and all(parts.result(name)["stdout"] == "from a topic\n" for name in by_topic)
        and states["completed"] == total - len(contained) - 1
    )
    print("every execution ended once" if is_good else "SOMETHING IS WRONG")
    return 0 if is_good else 1


def listed(parts: Parts, **filters: str) -> int:
    query = "".join(f"&{name}={value}" for name, value in filters.items())
    return int(parts.ask("root", "GET", f"/api/v1/admin/executions/?limit=1{query}")["total"])


def running_pods(parts: Parts) -> int:
    return len(parts.pods.running())


def idle(parts: Parts) -> bool:
    overview = parts.overview()
    return overview["queue_depth"] == overview["active_count"] == 0


def main() -> int:
    options = argparse.ArgumentParser(description="Run code of users in pods, on this machine.")
    options.add_argument("--broker", metavar="URL", help="a broker that runs [default: NATS, which is started]")
    options.add_argument("--executions", type=int, default=24, help="how many ordinary ones (24)")
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="a new folder for all of it, which is kept")
    given = options.parse_args()
    if given.keep is not None and given.keep.exists():
        sys.exit(f"{given.keep} exists: name a folder that does not, or delete it")
    try:
        sandbox.check_machine()
    except sandbox.NoSandbox as error:
        sys.exit(str(error))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # end what was started also then
    with contextlib.ExitStack() as around:
        folder = given.keep or Path(around.enter_context(tempfile.TemporaryDirectory(prefix="code-execution-")))
        folder.mkdir(parents=True, exist_ok=True)
        folder = folder.absolute()
        broker = given.broker or around.enter_context(nats(folder))
        try:
            return story(Parts(folder, broker, around), given.executions)
        except KeyboardInterrupt:
            return 130


if __name__ == "__main__":
    sys.exit(main())

"""`daybreak top`, as one frame."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from daybreak.api.queue_info import QueueInfo
from daybreak.cli.top.frame import frame
from daybreak.cli.top.snapshot import Rates, Snapshot
from daybreak.core.model import Job, JobSpec, QueueSettings, State

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def test_one_frame_shows_depth_running_and_failures(cli, place):
    place.submit(queue="mail", priority="low")
    failed = place.fail("\x1b[2Jno")
    running = place.run(progress=0.4, message="half way", queue="sim")
    place.worker("mail")
    place.do(lambda client: client.pause("mail"))
    told = cli("top", "--once").stdout
    assert "1 waiting  1 running  0 completed  1 failed  1 live worker" in told
    assert "low               1  ████████████████████" in told
    assert "████░░░░░░ 40 %" in told
    assert "half way" in told
    assert running in told
    assert failed in told
    assert "paused" in told
    assert "\x1b" not in told


def test_where_there_is_no_terminal_it_looks_once(cli, place):
    place.submit()
    assert "1 waiting" in cli("top").stdout


def test_an_empty_store(cli, place):
    place.do(lambda client: client.tallies())
    assert "0 waiting  0 running" in cli("top").stdout


@pytest.mark.parametrize("every", ["0s", "1ms"])
def test_looking_too_often_is_refused(cli, place, every):
    place.submit()
    assert "the shortest interval is 100ms" in cli("top", "--every", every, code=2).stderr


def seen(seconds: float, **states: int) -> Snapshot:
    counts = {State(name): n for name, n in states.items()}
    queue = QueueInfo(name="q", settings=QueueSettings(), is_set=False, states=counts, priorities={}, tasks={})
    return Snapshot(at=NOON + timedelta(seconds=seconds), queues=[queue], running=[], failed=[], workers=[])


def busy(queues: int, running: int, failed: int) -> Snapshot:
    made = [
        QueueInfo(
            name=f"q{n}", settings=QueueSettings(), is_set=False, priorities={5: n + 1}, tasks={},
            states={State.QUEUED: n + 1, State.RUNNING: running if n == 0 else 0},
        )
        for n in range(queues)
    ]  # fmt: skip
    specs = [JobSpec(id=f"job-{n}", task="mail") for n in range(20)]
    jobs = [Job(seq=1, spec=spec, state=State.RUNNING, priority=5, created_at=NOON, updated_at=NOON) for spec in specs]
    return Snapshot(at=NOON, queues=made, running=jobs[:running], failed=jobs[:failed], workers=[])


def test_queues_that_are_not_listed_are_counted():
    lines = [line.plain for line in frame(busy(31, 0, 0), {}, "jobs.db", None)]
    assert sum(line.startswith("q") for line in lines) == 10
    assert "and 21 more" in lines


@pytest.mark.parametrize("height", [24, 30, 50, 100])
def test_every_table_has_its_place_on_the_screen(height):
    lines = [line.plain for line in frame(busy(31, 20, 5), {"completed": 1.0}, "jobs.db", 100, height - 1)]
    assert len(lines) < height
    for title in ("QUEUE ", "RUNNING ", "FAILED "):
        [at] = [n for n, line in enumerate(lines) if line.startswith(title)]
        assert lines[at + 1].startswith(("q", "job-"))
    if height == 100:
        assert sum(line.startswith("job-") for line in lines) == 25
    else:
        assert any(line.startswith("and ") for line in lines), "what is left out is counted"


def test_rates_are_counted_over_the_last_ten_seconds():
    rates = Rates()
    rates.add(seen(0, queued=100))
    assert rates.per_second() == {}
    rates.add(seen(2, queued=90, completed=10))
    assert rates.per_second() == {"submitted": 0, "completed": 5, "failed": 0}
    rates.add(seen(12, queued=0, completed=90, failed=30))
    assert rates.per_second() == {"submitted": 2, "completed": 8, "failed": 3}


def test_what_is_removed_makes_no_rate_negative():
    rates = Rates()
    rates.add(seen(0, completed=10))
    rates.add(seen(1, completed=2))
    assert rates.per_second() == {"submitted": 0, "completed": 0, "failed": 0}


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_it_ends_when_its_terminal_is_closed(place):
    import pty

    place.submit()
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup, so that the closed terminal is all it notices
        os.chdir(place.folder)
        os.execv(sys.executable, [sys.executable, "-m", "daybreak.cli", "top", "--every", "100ms"])  # noqa: S606
    try:
        assert os.read(terminal, 1000)  # it draws
    finally:
        os.close(terminal)
    deadline = time.monotonic() + 20
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            pytest.fail("top went on without a terminal")
        time.sleep(0.05)


class Terminal:
    """`daybreak top` in a pseudo-terminal of 80x24 characters."""

    def __init__(self, place, *program: str, **environment: str) -> None:
        import fcntl
        import pty
        import struct
        import termios

        self.shown = ""
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            [sys.executable, *(program or ("-m", "daybreak.cli", "top"))], cwd=place.folder, start_new_session=True,
            stdin=self.slave, stdout=self.slave, stderr=self.slave, env={**os.environ, "TERM": "vt100", **environment},
        )  # fmt: skip

    def until(self, text: str) -> None:
        deadline = time.monotonic() + 60
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            if select.select([self.master], [], [], 0.1)[0]:
                self.shown += os.read(self.master, 10_000).decode("utf-8", "replace")

    def press(self, key: str) -> None:
        os.write(self.master, key.encode())

    def end(self) -> int:
        """The exit code. The terminal must be as it was before."""
        import termios

        deadline = time.monotonic() + 60
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.shown
            self.read()
        self.read()
        assert termios.tcgetattr(self.slave) == self.before
        return self.process.returncode

    def read(self) -> None:
        while select.select([self.master], [], [], 0.1)[0]:
            self.shown += os.read(self.master, 10_000).decode("utf-8", "replace")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal(place):
    opened: list[Terminal] = []

    def start(*program: str, **environment: str) -> Terminal:
        opened.append(Terminal(place, *program, **environment))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
@pytest.mark.parametrize("ending", ["q", "\x03", "SIGTERM", "SIGHUP"])
def test_in_a_real_terminal_it_shows_a_job_and_leaves_the_terminal_as_it_was(place, terminal, ending):
    job = place.submit("send_mail")
    screen = terminal()
    screen.until(job[-8:])
    if ending.startswith("SIG"):
        screen.process.send_signal(getattr(signal, ending))
    else:
        screen.press(ending)
    assert screen.end() == 0, screen.shown
    assert screen.shown.rindex("\x1b[?1049l") > screen.shown.rindex("\x1b[?1049h"), "the screen before it is back"
    assert screen.shown.rindex("\x1b[?25h") > screen.shown.rindex("\x1b[?25l"), "the cursor is back"
    assert "Traceback" not in screen.shown


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_without_colours_no_colour_is_sent(place, terminal):
    place.fail("smtp refused")
    place.submit()  # the selected job; the state of the other one would be red
    screen = terminal(NO_COLOR="1")
    screen.until("failed 1")
    screen.press("q")
    assert screen.end() == 0
    colours = re.findall(r"\x1b\[(?:[\d;]*;)?(?:3[0-8]|4[0-8]|9\d|10[0-7])[\d;]*m", screen.shown)
    assert colours == []


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_without_textual_it_only_shows_and_names_the_extra(place, terminal):
    place.submit("send_mail")
    without = (
        "import sys; sys.modules['textual'] = None; sys.argv[1:] = ['top']; import daybreak.cli.root as r; r.main()"
    )
    screen = terminal("-c", without)
    screen.until("pip install 'daybreak[top]'")
    assert "1 waiting" in screen.shown
    screen.press("q")
    assert screen.end() == 0


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_a_bug_restores_the_terminal_and_prints_no_variables(place, terminal):
    place.submit("send_mail", {"to": "somebody"})
    bug = (
        "import sys; sys.argv[1:] = ['top']; import daybreak.cli.root as r, daybreak.cli.top.jobs_screen as j\n"
        "def broken(*_, **__):\n    pin = 'pin-' + str(1000 + 234)\n    return 1 / 0\n"
        "j.job_row = broken; r.main()"
    )
    screen = terminal("-c", bug)
    screen.until("internal error (ZeroDivisionError: division by zero)")
    assert screen.end() == 70
    assert "pin-1234" not in screen.shown
    assert "Traceback" not in screen.shown


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
@pytest.mark.parametrize("environment", [{"TERM": "dumb"}])
def test_a_dumb_terminal_gets_one_view(place, terminal, environment):
    place.submit("send_mail")
    screen = terminal(**environment)
    screen.until("1 waiting")
    assert screen.end() == 0
    assert "\x1b[?1049h" not in screen.shown


def test_help_does_not_import_textual():
    code = (
        "import sys, daybreak.cli.root, daybreak.cli.top; sys.exit('textual' in sys.modules or 'rich' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

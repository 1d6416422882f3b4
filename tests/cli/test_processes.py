"""The program as a process of its own: signals, pipes, terminals."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from daybreak.cli.lock import _Running

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX signals and terminals")


full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")


@pytest.fixture
def in_shell(tmp_path):
    """Runs the program from a shell, which can close what it reads and writes."""

    def run(line: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", f'"$0" -m daybreak.cli {line}', sys.executable], cwd=tmp_path, capture_output=True,
            text=True, check=False, timeout=60, env={**os.environ, **env},
        )  # fmt: skip

    return run


def test_submit_and_look_through_the_installed_program(tmp_path):
    program = Path(sys.executable).with_name("daybreak")
    made = subprocess.run(
        [program, "submit", "mail", "to=ann"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    job = made.stdout.strip()
    assert len(job) == 36
    assert "no worker is running" in made.stderr
    seen = subprocess.run(
        [program, "jobs", "show", job, "--json"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json.loads(seen.stdout)["args"] == {"to": "ann"}


def test_ctrl_c_ends_it_quietly(start, place, until):
    job = place.submit()
    waiting = start("jobs", "result", job, "--wait")
    # It says after two seconds that nobody works: by then it waits for sure.
    assert "no worker is running" in waiting.stderr.readline()
    waiting.send_signal(signal.SIGINT)
    stdout, stderr = waiting.communicate(timeout=30)
    assert (waiting.returncode, stdout, stderr.strip()) == (130, "", "")


def test_a_reader_that_has_gone_is_no_error(start, place, tmp_path):
    place.do(lambda client: client.submit_many([client.spec("mail", {"text": "x" * 500}) for _ in range(500)]))
    listing = start("jobs", "--limit", "500", "--json")
    assert listing.stdout.read(10)
    listing.stdout.close()
    assert listing.wait(30) == 141
    assert listing.stderr.read() == ""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("redirect", "why"),
    [(">&-", "standard output is closed"), pytest.param("> /dev/full", "No space left", marks=full)],
)
@pytest.mark.parametrize("words", ["jobs", "--help", "queues pause mail"])
def test_output_that_cannot_be_written_is_told(place, in_shell, words, redirect, why, unbuffered):
    place.submit(queue="mail")
    ran = in_shell(f"{words} {redirect}", PYTHONUNBUFFERED=unbuffered)
    assert f"Error: the output could not be written: {why}" in ran.stderr
    assert ran.returncode == 1


@pytest.mark.parametrize("words", ["submit mail", "submit mail --json"])
@pytest.mark.parametrize("redirect", [">&-", pytest.param("> /dev/full", marks=full)])
def test_a_job_that_was_accepted_is_told_though_its_id_cannot_be_printed(place, in_shell, words, redirect):
    ran = in_shell(f"{words} {redirect}")
    [job] = place.do(lambda client: client.find()).jobs
    assert f"job {job.id} was accepted" in ran.stderr
    assert "could not be written" in ran.stderr
    assert ran.returncode == 1


def test_who_prints_nothing_needs_no_output(in_shell):
    assert in_shell("lock x -- true >&-").returncode == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [("submit mail --args -", 2), ("submit mail x=@-", 2), ("jobs cancel --queue mail", 0), ("top", 0)],
)
def test_nothing_is_read_from_an_input_that_is_closed(place, in_shell, words, code):
    place.submit(queue="mail")
    ran = in_shell(f"{words} <&-")
    assert ran.returncode == code
    assert ("standard input is closed" in ran.stderr) == (code == 2)


def test_a_signal_that_comes_while_a_command_starts_reaches_it(cli, monkeypatch):
    begin = _Running._start

    def interrupted(self, *how):
        os.kill(os.getpid(), signal.SIGTERM)
        return begin(self, *how)

    monkeypatch.setattr(_Running, "_start", interrupted)
    cli("lock", "x", "--", sys.executable, "-c", "import time; time.sleep(10)", code=128 + signal.SIGTERM)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_what_tasks_print_where_nobody_reads_fails_no_job(in_shell, tmp_path, isolation):
    (tmp_path / "shop.py").write_text(
        "from daybreak import Daybreak\n\napp = Daybreak()\n\n\n@app.task(retry=1)\ndef sell() -> int:\n"
        "    print('sold', flush=True)\n    return 3\n"
    )
    job = in_shell("submit sell --app shop.py").stdout.strip()
    ran = in_shell(f"worker shop.py --until-idle --isolation {isolation} >&-")
    assert ran.returncode == 0, ran.stderr
    assert in_shell(f"jobs result {job}").stdout == "3\n"


def test_notes_that_nobody_can_read_are_not_missed(place, in_shell):
    job = place.complete()
    assert in_shell(f"jobs result {job} --wait 2>&-").stdout == '"ok"\n'
    assert in_shell("jobs show x 2>&-").returncode == 4


def test_what_is_piped_in_are_the_arguments(start, ask):
    submitting = start("submit", "mail", "--args", "-", stdin=subprocess.PIPE)
    stdout, _ = submitting.communicate('{"to": "ann"}', timeout=30)
    assert ask("jobs", "show", stdout.strip(), "--json")["args"] == {"to": "ann"}


def on_terminal(
    words: list[str], cwd: Path, *, keys: bytes = b"", columns: int = 80, rows: int = 40, **env: str
) -> tuple[int, str]:
    """Runs the program on a terminal of its own; `keys` are typed once it has printed something."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "daybreak.cli", *words],
        cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color", **env},
    )  # fmt: skip
    os.close(theirs)
    printed = b""
    with contextlib.suppress(OSError):  # how Linux says that the other side has closed
        while select.select([ours], [], [], 30)[0] and (data := os.read(ours, 65536)):
            printed += data
            if (keys and b"?" in printed) or (keys == b"q" and b"q ends" in printed):
                os.write(ours, keys)
                keys = b""
    os.close(ours)
    return process.wait(30), printed.decode()


def test_on_a_terminal_there_is_colour_unless_it_is_not_wanted(place, tmp_path):
    place.fail()
    _, printed = on_terminal(["jobs"], tmp_path, columns=200)
    assert "\x1b[31mfailed" in printed
    _, printed = on_terminal(["jobs"], tmp_path, columns=200, NO_COLOR="1")
    assert "\x1b[31m" not in printed
    assert "failed" in printed


def test_what_a_job_says_cannot_steer_the_terminal(place, tmp_path):
    job = place.fail("\x1b]0;pwned\x07\x1b[2J[red]x[/red]\u202e", tags=["a[b]"])
    for words in (["jobs"], ["jobs", "show", job], ["top", "--once"]):
        _, printed = on_terminal(words, tmp_path, NO_COLOR="1")
        assert "\x1b]0;" not in printed
        assert "\x1b[2J" not in printed
        assert "\u202e" not in printed
        assert r"\x1b]0;pwned\x07\x1b[2J[red]x[/red]\u202e" in printed.replace("\r\n", "")


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_ids_stay_whole_however_narrow_it_is(place, tmp_path, columns):
    job = place.fail("x" * 300, queue="a-queue-with-a-long-name")
    _, printed = on_terminal(["jobs"], tmp_path, columns=columns, NO_COLOR="1")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", printed).splitlines()
    assert any(line.startswith(job) for line in lines)
    [error] = [line for line in lines if "xxx" in line]
    assert len(error) == columns
    assert error.endswith("…")


@pytest.mark.parametrize(("answer", "state", "code"), [(b"y\n", "cancelled", 0), (b"n\n", "queued", 1)])
def test_a_person_is_asked_before_many_jobs_are_changed(place, tmp_path, answer, state, code):
    job = place.submit(queue="mail")
    found, printed = on_terminal(["jobs", "cancel", "--queue", "mail"], tmp_path, keys=answer)
    assert "1 queued job in mail will be cancelled. Continue? [y/N]" in printed
    assert (found, place.get(job).state) == (code, state)


def test_who_said_yes_is_not_asked(place, tmp_path):
    place.submit(queue="mail")
    code, printed = on_terminal(["jobs", "cancel", "--queue", "mail", "--yes"], tmp_path)
    assert (code, "Continue?" in printed) == (0, False)


def test_the_plain_view_shows_what_runs_until_q_is_pressed(place, tmp_path):
    job = place.run(progress=0.4, message="half way")
    code, printed = on_terminal(["top", "--plain", "--every", "100ms"], tmp_path, keys=b"q", columns=120)
    assert code == 0
    assert job in printed
    assert "40 %" in printed
    assert printed.rstrip().endswith("\x1b[?25h\x1b[?1049l"), "the cursor and the old screen are there again"


def test_top_on_a_terminal_that_cannot_be_drawn_on_looks_once(place, tmp_path):
    job = place.run(progress=0.4, message="half way")
    code, printed = on_terminal(["top"], tmp_path, columns=120, TERM="dumb")
    assert code == 0
    assert job in printed
    assert "\x1b" not in printed


def test_the_plain_view_shows_failures_and_the_key_that_ends_it_on_a_small_screen(place, tmp_path):
    for n in range(12):
        place.submit(queue=f"q{n}")
    failed = [place.fail(queue="broken") for _ in range(5)]
    code, printed = on_terminal(["top", "--plain", "--every", "100ms"], tmp_path, keys=b"q", columns=100, rows=24)
    assert code == 0
    assert failed[-1] in printed
    assert " more" in printed


def test_while_a_person_waits_a_line_says_how_far_it_is(place, tmp_path):
    job = place.run(progress=0.4, message="half way")
    code, printed = on_terminal(["jobs", "result", job, "--timeout-wait", "500ms"], tmp_path)
    assert code == 5
    assert "running 40 % half way" in printed


def test_text_that_the_terminal_cannot_show_is_spelt_out(place, tmp_path):
    place.submit("grüße")
    ran = subprocess.run(
        [sys.executable, "-m", "daybreak.cli", "jobs"], cwd=tmp_path, capture_output=True, check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert b"gr\\xfc\\xdfe" in ran.stdout

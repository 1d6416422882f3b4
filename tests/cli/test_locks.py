"""`daybreak lock` and `daybreak locks`, as processes where they are processes."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys

import pytest


def wait_for_line(process) -> str:
    return process.stdout.readline().strip()


def test_a_command_runs_under_the_lock_with_its_fence(start):
    script = "import os; print(os.environ['DAYBREAK_FENCE'], os.environ['DAYBREAK_LOCK']); raise SystemExit(7)"
    for fence in ("1", "2"):
        process = start("lock", "prod/network", "--", sys.executable, "-c", script)
        out, _ = process.communicate(timeout=30)
        assert out.split() == [fence, "prod/network"]
        assert process.returncode == 7


def test_who_waits_too_long_gets_75(start, cli):
    cli("locks", "take", "prod", "--owner", "pr-1", "--for", "1h")
    process = start("lock", "prod", "--wait", "200ms", "--", "true")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 75
    assert "held by pr-1" in err
    assert "--wait" in err


def test_signals_are_passed_on_and_the_lock_is_free_afterwards(start, cli, ask):
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
        "print('up', flush=True)\n"
        "time.sleep(60)"
    )
    process = start("lock", "prod", "--", sys.executable, "-c", script)
    assert wait_for_line(process) == "up"
    [held] = ask("locks", "--json")["locks"]
    assert held["state"] == "running"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 3
    assert ask("locks", "--json")["locks"] == []


def test_a_command_that_dies_by_a_signal_is_told_as_shells_do(start):
    process = start(
        "lock", "prod", "--", sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    )
    process.communicate(timeout=30)
    assert process.returncode == 137


def test_a_lock_taken_away_interrupts_the_command_and_answers_76(start, cli):
    script = (
        "import time\nprint('up', flush=True)\n"
        "try: time.sleep(60)\nexcept KeyboardInterrupt: print('interrupted', flush=True)"
    )
    process = start("lock", "prod", "--lease", "600ms", "--", sys.executable, "-c", script)
    assert wait_for_line(process) == "up"
    assert cli("locks", "release", "prod", "--force").stdout.startswith("1 lock released")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 76
    assert "interrupted" in out
    assert "lost" in err


def test_if_lost_warn_lets_the_command_go_on(start, cli):
    script = "import time\nprint('up', flush=True)\ntime.sleep(1.5)\nraise SystemExit(5)"
    process = start("lock", "prod", "--lease", "600ms", "--if-lost", "warn", "--", sys.executable, "-c", script)
    assert wait_for_line(process) == "up"
    cli("locks", "release", "prod", "--force")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 5
    assert "The command continues" in err


def test_no_such_command_is_127_and_leaves_no_lock(start, ask):
    process = start("lock", "prod", "--", "no-such-command-anywhere")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 127
    assert "command not found" in err
    assert ask("locks", "--json")["locks"] == []


def test_a_script_is_interrupted_with_all_it_started(start, cli, tmp_path):
    script = tmp_path / "deploy.sh"
    script.write_text("#!/bin/bash\necho up\nsleep 30\necho step two\n")
    script.chmod(0o755)
    process = start("lock", "prod", "--lease", "600ms", "--", str(script), stdin=subprocess.DEVNULL)
    assert wait_for_line(process) == "up"
    cli("locks", "release", "prod", "--force")
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 76
    assert "step two" not in out


IN_BACKGROUND = (
    "import os, signal, sys\n"
    "signal.signal(signal.SIGINT, signal.SIG_IGN)\nsignal.signal(signal.SIGQUIT, signal.SIG_IGN)\n"
    "os.execv(sys.executable, [sys.executable, '-m', 'daybreak.cli', *sys.argv[1:]])"
)


@pytest.fixture
def in_background(tmp_path):
    """As `sh script &` starts it: with SIGINT ignored."""
    started = []

    def start(*words):
        process = subprocess.Popen(
            [sys.executable, "-c", IN_BACKGROUND, *words],
            cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_command_of_a_background_script_is_interrupted_when_the_lock_is_lost(in_background, cli):
    script = (
        "import time\nprint('up', flush=True)\n"
        "try: time.sleep(60)\nexcept KeyboardInterrupt: print('interrupted', flush=True)"
    )
    process = in_background("lock", "prod", "--lease", "600ms", "--", sys.executable, "-c", script)
    assert wait_for_line(process) == "up"
    cli("locks", "release", "prod", "--force")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 76
    assert "interrupted" in out, err
    assert "goes on after" not in err


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_command_that_ignores_signals_is_killed_with_its_group(in_background, cli):
    # What it leaves behind would hold the pipe open: that it ends is seen by communicate().
    script = (
        "trap 'echo INT' INT; trap 'echo TERM' TERM; echo up\n(trap '' INT TERM; sleep 60) &\nwhile :; do wait; done"
    )
    process = in_background("lock", "prod", "--lease", "600ms", "--kill-after", "1s", "--", "sh", "-c", script)
    assert wait_for_line(process) == "up"
    cli("locks", "release", "prod", "--force")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 76
    assert out.split() == ["INT", "TERM"]
    assert "after SIGINT" in err
    assert "after SIGTERM" in err


@pytest.mark.parametrize(
    "words", [("lock", "prod", "--", "true"), ("locks", "take", "prod", "--owner", "x", "--for", "8h")]
)
def test_who_is_ended_while_waiting_leaves_the_line(start, cli, ask, until, words):
    cli("locks", "take", "prod", "--owner", "pr-1", "--for", "1h")
    process = start(*words)
    until(lambda: len(ask("locks", "--json")["locks"]) == 2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143
    assert [one["who"] for one in ask("locks", "--json")["locks"]] == ["pr-1"]


def test_an_owner_waits_for_a_dead_process_no_longer_than_its_lease(start, place, ask, until):
    place.do(lambda client: client.tallies())
    command = (sys.executable, "-c", "import time; time.sleep(10)")
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}  # the command outlives who started it
    holder = start("lock", "prod", "--lease", "1s", "--", *command, **silent)
    until(lambda: ask("locks", "--json")["locks"])
    holder.kill()
    assert ask("locks", "take", "prod", "--owner", "pr-1", "--for", "1h", "--wait", "30s", "--json")["fence"] == 2


def test_two_who_take_for_one_owner_both_have_it(start, cli, ask, until):
    cli("locks", "take", "prod", "--owner", "pr-1", "--for", "1h")
    takers = [start("locks", "take", "prod", "--owner", "pr-2", "--for", "1h") for _ in range(2)]
    until(lambda: len(ask("locks", "--json")["locks"]) == 2)
    cli("locks", "release", "prod", "--owner", "pr-1")
    for process in takers:
        process.communicate(timeout=30)
    assert [process.returncode for process in takers] == [0, 0]
    cli("locks", "release", "prod", "--owner", "pr-2")


# -- of an owner -------------------------------------------------------------------------------------------------------


def test_an_owners_lock_outlives_the_command_that_took_it(cli, ask):
    told = cli("locks", "take", "prod", "--owner", "pr-812", "--for", "8h").stdout
    assert told == "prod is held by pr-812 for 8 h, fence 1.\n"
    [held] = ask("locks", "--json")["locks"]
    assert (held["locks"], held["who"], held["state"]) == (["prod"], "pr-812", "running")
    assert "prod" in cli("locks").stdout
    assert ask("locks", "take", "prod", "--owner", "pr-812", "--for", "9h", "--json")["fence"] == 1
    assert "for 9 h" in cli("locks", "extend", "prod", "--owner", "pr-812", "--for", "9h").stdout
    cli("locks", "take", "prod", "--owner", "pr-9", "--for", "1h", "--wait", "100ms", code=75)
    assert "holds the lock, not pr-9" in cli("locks", "release", "prod", "--owner", "pr-9", code=1).stderr
    assert cli("locks", "release", "prod", "--owner", "pr-812").stdout == "1 lock released; held by pr-812 until now.\n"
    assert ask("locks", "take", "prod", "--owner", "pr-9", "--for", "1h", "--json")["fence"] == 2


def test_no_lock_is_no_error(cli, place):
    place.do(lambda client: client.tallies())
    assert cli("locks").stdout == "No lock is held. Run a command under a lock with: daybreak lock NAME -- COMMAND\n"
    assert json.loads(cli("locks", "--json").stdout) == {"locks": []}


def test_what_is_told_next_is_for_the_same_store_and_can_be_typed(cli, start, ask):
    cli("submit", "mail", "--url", "other.db")
    hint = cli("locks", "--url", "other.db").stdout.partition("under a lock with: ")[2]
    words = shlex.split(hint.replace("COMMAND", shlex.join([sys.executable, "-c", "import time; time.sleep(60)"])))
    process = start(*words[1:])
    while not (held := ask("locks", "--json", "--url", "other.db")["locks"]):
        assert process.poll() is None, process.communicate()
    assert held[0]["locks"] == ["NAME"]
    process.terminate()
    process.communicate(timeout=30)
    cli("locks", "take", "prod", "--owner", "pr-1", "--for", "1h")
    assert "Move a waiter forward with: daybreak jobs priority high JOB" in cli("locks").stdout


@pytest.mark.parametrize(
    ("words", "named", "code"),
    [
        (("take", "prod", "--for", "8h"), "--owner", 2),
        (("take", "prod", "--owner", "x", "--for", "8"), "8h", 2),
        (("take", "--owner", "x", "--for", "8h"), "NAME", 2),
        (("take", "prod", "prod", "--owner", "x", "--for", "8h"), "twice", 2),
        (("extend", "prod", "--owner", "x", "--for", "1h"), "does not hold", 2),
        (("release", "prod"), "--force", 2),
        (("release", "prod", "--force"), "not held", 4),
        (("release", "prod", "--owner", "x"), "not held", 4),
    ],
)
def test_what_cannot_be_right_is_named(cli, place, words, named, code):
    place.do(lambda client: client.tallies())
    assert named in cli("locks", *words, code=code).stderr


def test_a_lock_without_a_command_is_a_mistake(cli):
    assert "COMMAND" in cli("lock", "prod", code=2).stderr

"""Programs on a directory store that are killed, and what must hold of all that they were told."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from directory_program import __file__ as program

LIMIT = 60.0


class Program:
    """The program in a process of its own. `lines` are what it has printed so far."""

    def __init__(self, folder: Path, name: str, log: Path, *more: str) -> None:
        self._log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen([sys.executable, program, str(folder), name, *more], stdout=out)

    @property
    def lines(self) -> list[list[str]]:
        text = self._log.read_text()
        return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]

    def wait_for(self, what: str) -> None:
        until = time.monotonic() + LIMIT
        while not any(line[0] == what for line in self.lines):
            assert self.process.poll() is None, "the program ended"
            assert time.monotonic() < until, f"it never said {what}"
            time.sleep(0.01)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def told(lines: list[list[str]], what: str) -> list[str]:
    return [job for said, job in lines if said == what]


def kill_again_and_again(tmp_path: Path, kills: int) -> int:
    """Kill programs on one folder, one after the other, then check what they were told. Returns how many jobs there
    were."""
    chance, lines = random.Random(5), []
    for number in range(kills):
        running = Program(tmp_path / "jobs", f"p{number}", tmp_path / f"{number}.log")
        try:
            running.wait_for("completed")
            time.sleep(chance.random() * 0.05)
        finally:
            running.kill()
        lines += running.lines
    last = Program(tmp_path / "jobs", "last", tmp_path / "last.log", "until-idle")
    assert last.process.wait(LIMIT) == 0
    lines += last.lines
    accepted, completed = told(lines, "accepted"), told(lines, "completed")
    assert len(accepted) == len(set(accepted)) > kills
    assert len(completed) == len(set(completed)), "a job was completed twice"
    ended = set()
    for said, job in lines:
        assert said != "started" or job not in ended, f"{job} was started after it was completed"
        if said == "completed":
            ended.add(job)
    states = [path.name.split(".")[1] for path in (tmp_path / "jobs").iterdir() if path.is_file()]
    assert set(states) == {"completed"}
    there = {path.name.split(".")[0] for path in (tmp_path / "jobs").iterdir() if path.is_file()}
    assert set(accepted) <= there, "an accepted job was lost"
    return len(accepted)

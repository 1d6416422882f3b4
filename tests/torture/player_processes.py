"""Starts players as real processes, sends them commands, stops and kills them by pid, and reads their log lines."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, Self

import pytest

LONG = os.environ.get("DAYBREAK_TORTURE") == "long"
LEASE = timedelta(seconds=1)
PLAYER = Path(__file__).with_name("player.py")


def count(short: int, long: int) -> int:
    return long if LONG else short


def missing(what: str) -> NoReturn:
    """What this machine cannot do is skipped loudly; in CI, where root can do everything, it is a failure."""
    if os.environ.get("CI") == "true" and os.geteuid() == 0:
        pytest.fail(what)
    pytest.skip(f"LOUD: {what}")


class Player:
    """One process under our hand."""

    def __init__(self, role: str, db: Path, folder: Path, name: str, **params: Any) -> None:
        self.name = name
        self.errors = folder / f"{name}-{time.monotonic_ns()}.stderr"
        params = {"name": name, "log": str(folder / "lines"), "path": str(db), **params}
        with self.errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(PLAYER), role, str(db), json.dumps(params)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.killed_at: float | None = None

    @property
    def called(self) -> str:
        """The name it signs with: unique per process start."""
        return f"{self.name}-{self.pid}"

    @property
    def returned(self) -> int | None:
        return self._process.poll()

    def wait_ready(self, patience: float = 120.0) -> Self:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], patience)
        line = self._process.stdout.readline() if readable else b""
        assert line == b"ready\n", f"{self.name} did not come up: {self.complaint()}"
        return self

    def order(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word.encode() + b"\n")
        self._process.stdin.flush()

    def freeze(self) -> None:
        if self.returned is None:
            os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        if self.returned is None:
            os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        if self.returned is None:
            self.killed_at = time.time()
            os.killpg(self.pid, signal.SIGKILL)  # its own session: the player and what it forked, nobody else
        self._process.wait(120)
        self._close()

    def finish(self, patience: float = 120.0) -> int:
        """Ask it to end, and wait; its exit code."""
        with contextlib.suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            return self._process.wait(patience)
        finally:
            self._close()

    def wait(self, patience: float) -> int:
        """Let it end by itself."""
        try:
            return self._process.wait(patience)
        finally:
            self._close()

    def complaint(self) -> str:
        return self.errors.read_text()[-3000:]

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class PlayerProcesses:
    """All players of a test; none outlives it."""

    def __init__(self, db: Path, folder: Path) -> None:
        self.db = db
        self.folder = folder
        self.players: list[Player] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for player in self.players:
            player.kill()

    def start(self, role: str, name: str, **params: Any) -> Player:
        player = Player(role, self.db, self.folder, name, **params)
        self.players.append(player)
        return player

    def start_all(self, role: str, names: list[str], **params: Any) -> list[Player]:
        started = [self.start(role, name, **params) for name in names]
        return [player.wait_ready() for player in started]

    def lines(self) -> list[dict[str, Any]]:
        return list(read_lines(self.folder / "lines"))


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """What players told; the last line may be torn where its writer was killed in the write itself."""
    if path.exists():
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                yield json.loads(line)


def told(lines: list[dict[str, Any]], op: str, name: str | None = None) -> list[dict[str, Any]]:
    return [line for line in lines if line["op"] == op and name in (None, line["p"])]

"""`daybreak serve` as a process of its own, and the little HTTP that a case needs to ask it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.processes import ROOT, Process, free_port
from benchmarks.starts import wait_until

HOST = "127.0.0.1"


@contextmanager
def served(place: Path) -> Iterator[tuple[Process, int]]:
    """A server of the store that DAYBREAK_URL names, and its port."""
    port = free_port()
    command = [sys.executable, "-m", "daybreak.cli", "serve", "--port", str(port)]
    with Process(command, place, "server") as process:
        wait_until(lambda: process.check() and _answers(port), "the start of the server", within=60)
        yield process, port


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/health/live", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def new_token(*roles: str) -> str:
    words = [word for role in roles for word in ("--role", role)]
    command = [sys.executable, "-m", "daybreak.cli", "tokens", "create", "bench", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.strip()


def request(method: str, path: str, token: str = "", body: Any = None) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}"]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    data = b"" if body is None else json.dumps(body).encode()
    if data:
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    return "\r\n".join([*lines, "", ""]).encode() + data


class Connection:
    """One connection that is kept. One request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, asked: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer."""
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(HOST, self._port)
        self._writer.write(asked)
        head = await self._reader.readuntil(b"\r\n\r\n")
        fields = dict(line.partition(b": ")[::2] for line in head.lower().split(b"\r\n"))
        return int(head.split(b" ", 2)[1]), await self._reader.readexactly(int(fields.get(b"content-length", b"0")))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


async def messages(port: int) -> AsyncIterator[bytes]:
    """The messages of the live feed, as they come."""
    reader, writer = await asyncio.open_connection(HOST, port, limit=2**24)
    try:
        writer.write(request("GET", "/api/v1/events"))
        await reader.readuntil(b"\r\n\r\n")
        while True:
            yield await reader.readuntil(b"\n\n")
    finally:
        writer.close()

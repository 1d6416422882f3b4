"""Programs that drop files, and the app that watches the folders: for `test_drop_folders.py`.

`python drop_load.py FOLDER PREFIX COUNT SEED MODE...` drops files. Every file ends with the digest of what precedes
it."""

from __future__ import annotations

import hashlib
import os
import random
import sys
import threading
import time
from pathlib import Path

from daybreak import Daybreak, File

THREADS = 4
PAUSE = 0.3

app = Daybreak()


@app.task
def upload(report: File) -> str:
    """Refuse half a report, and note a whole one."""
    content = report.path.read_bytes()
    payload, _, digest = content.rpartition(b"\nEND ")
    if hashlib.sha256(payload).hexdigest().encode() != digest:
        raise ValueError(f"{report.name} is truncated: {len(content)} bytes")
    with Path(os.environ["DROP_LEDGER"]).open("ab", buffering=0) as ledger:
        ledger.write(f"{report.name}\n".encode())
    return report.digest


if os.environ.get("DROP_FOLDER"):
    app.watch(os.environ["DROP_FOLDER"], upload, settle=os.environ["DROP_SETTLE"])


def content_of(name: str, seed: int) -> bytes:
    chance = random.Random(f"{name} {seed}")
    payload = name.encode() + chance.randbytes(chance.choice((100, 2_000, 20_000)))
    return payload + b"\nEND " + hashlib.sha256(payload).hexdigest().encode()


def drop(folder: Path, name: str, content: bytes, mode: str) -> None:
    path, half = folder / name, len(content) // 2
    if mode == "rename":
        hidden = folder / f"{name}.tmp"
        hidden.write_bytes(content)
        hidden.rename(path)
        return
    if mode == "slow":  # the program pauses with the file open, now and then for longer than any settle time
        with path.open("wb", buffering=0) as file:
            file.write(content[:half])
            time.sleep(5 if hash(name) % 500 == 0 else 0.02)
            file.write(content[half:])
        return
    path.write_bytes(content[:half])
    time.sleep(PAUSE)
    with path.open("ab", buffering=0) as file:
        file.write(content[half:])
    if mode == "marked":
        (folder / f"{name}.done").touch()


def drop_all(folder: Path, prefix: str, numbers: range, seed: int, modes: list[str]) -> None:
    for number in numbers:
        name = f"{prefix}-{number:05}.json"
        drop(folder, name, content_of(name, seed), modes[number % len(modes)])


def main() -> None:
    folder, prefix, count, seed, *modes = sys.argv[1:]
    threads = [
        threading.Thread(
            target=drop_all, args=(Path(folder), prefix, range(first, int(count), THREADS), int(seed), modes)
        )
        for first in range(THREADS)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()

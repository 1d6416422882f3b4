"""BullMQ, in Node: a process that enqueues what it is told to, and a worker. Both are in bullmq_app.cjs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.apart import modules_of

PROGRAM = str(Path(__file__).with_suffix(".cjs"))
NODE = shutil.which("node") or "node"
COMMAND = (NODE, PROGRAM, "work")

os.environ["NODE_PATH"] = str(modules_of("bullmq"))
_node: subprocess.Popen[str] | None = None


def prepare() -> None:
    global _node  # noqa: PLW0603 - one process for all calls
    _node = subprocess.Popen(
        [NODE, PROGRAM, "enqueue"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )


def enqueue(numbers: range) -> None:
    _tell("one", numbers)


def bulk(numbers: range) -> None:
    _tell("bulk", numbers)


def close() -> None:
    """It ends when nobody can tell it anything more."""
    if _node is not None and _node.stdin:
        _node.stdin.close()
        _node.wait(10)


def _tell(how: str, numbers: range) -> None:
    assert _node, "nobody to tell: prepare comes first"
    assert _node.stdin
    assert _node.stdout
    _node.stdin.write(f"{how} {numbers.start} {numbers.stop}\n")
    answer = _node.stdout.readline().strip()
    assert answer == "done", f"BullMQ answered {answer!r}"


def versions() -> dict[str, str]:
    told = {}
    for package in ("bullmq", "ioredis"):
        about = modules_of("bullmq") / package / "package.json"
        told[package] = json.loads(about.read_text(encoding="utf-8"))["version"]
    return told

"""The sandbox of the example of code execution, where this machine has one."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
from pathlib import Path

import pytest
from execution_queue import sandbox

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "code_execution"


@functools.cache
def what_is_missing() -> str:
    try:
        sandbox.check_machine()
    except sandbox.NoSandbox as error:
        return str(error)
    ended = asyncio.run(sandbox.run("bash", "echo works", sandbox.Limits()))
    return "" if ended.stdout == "works\n" else f"bubblewrap cannot make a sandbox here: {ended.stderr.strip()[:300]}"


def need_sandbox() -> None:
    """At home a missing sandbox skips, and says so; in CI it fails."""
    missing = what_is_missing()
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"{missing}: the tests of code execution need a sandbox")
    if missing:
        pytest.skip(f"{missing}: the tests of code execution are SKIPPED")


def need_nats() -> None:
    """At home a missing server skips, and says so; in CI it fails."""
    if shutil.which("nats-server", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("nats-server is not installed: the tests of code execution need it")
        pytest.skip("nats-server is not installed: the tests of code execution are SKIPPED")

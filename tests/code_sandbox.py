"""The sandbox of the example of code execution, where this machine has one."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

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
    with ThreadPoolExecutor(1) as thread:  # this thread may have a running loop
        ended = thread.submit(lambda: asyncio.run(sandbox.run("bash", "echo works", sandbox.Limits()))).result()
    return "" if ended.stdout == "works\n" else f"bubblewrap cannot make a sandbox here: {ended.stderr.strip()[:300]}"


def need_sandbox() -> None:
    """At home a missing sandbox skips, and says so; in CI it fails."""
    missing = what_is_missing()
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"{missing}: the tests of code execution need a sandbox")
    if missing:
        pytest.skip(f"{missing}: the tests of code execution are SKIPPED")


@functools.cache
def load_run() -> ModuleType:
    """The script `run.py` of the example, as a module: other examples have one of this name, too."""
    spec = importlib.util.spec_from_file_location("code_execution_run", EXAMPLE / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def need_nats() -> None:
    """At home a missing server skips, and says so; in CI it fails."""
    if shutil.which("nats-server", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("nats-server is not installed: the tests of code execution need it")
        pytest.skip("nats-server is not installed: the tests of code execution are SKIPPED")

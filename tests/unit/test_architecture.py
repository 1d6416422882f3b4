"""The pictures of the architecture are those that the code draws now, and no part reads a clock that must not."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_pictures_show_the_layers_and_modules_that_there_are():
    command = [sys.executable, str(ROOT / "docs" / "pictures" / "architecture.py"), "--check"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


# -- who may read a clock ----------------------------------------------------------------------------------------------

TIMED = ("worker/supervisor", "services")
WAITS = {"sleep", "timeout", "timeout_at", "wait_for"}
TIMERS = {"call_later", "call_at"}


def direct_uses_of_time(source: str) -> list[str]:
    """Where a module reads a clock or waits without the ports. `asyncio.sleep(0)` only lets others run."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names) if any(alias.name == "time" for alias in names):
                found.append(f"line {node.lineno}: import time")
            case ast.ImportFrom(module="time" | "asyncio" as module):
                found.append(f"line {node.lineno}: from {module} import")
            case ast.Call(ast.Attribute(ast.Name("asyncio"), "sleep"), [ast.Constant(0)]):
                pass
            case ast.Call(ast.Attribute(ast.Name("asyncio"), name)) if name in WAITS:
                found.append(f"line {node.lineno}: asyncio.{name}")
            case ast.Call(ast.Attribute(ast.Name("asyncio"), "wait"), keywords=words) if "timeout" in str(
                [word.arg for word in words]
            ):
                found.append(f"line {node.lineno}: asyncio.wait with a timeout")
            case ast.Call(ast.Attribute(owner, name)) if name in TIMERS and "clock" not in ast.unparse(owner):
                found.append(f"line {node.lineno}: {ast.unparse(owner)}.{name}")
            case ast.Call(ast.Attribute(owner, "time")) if "loop" in ast.unparse(owner):
                found.append(f"line {node.lineno}: {ast.unparse(owner)}.time")
            case ast.Call(ast.Attribute(ast.Name("datetime"), "now" | "utcnow")):
                found.append(f"line {node.lineno}: datetime.now")
    return found


@pytest.mark.parametrize("folder", TIMED)
def test_the_supervisor_and_the_services_take_their_time_from_the_ports(folder):
    """So that the simulation can run them in virtual time."""
    modules = sorted((ROOT / "src" / "daybreak" / folder).rglob("*.py"))
    assert modules
    found = {module.name: uses for module in modules if (uses := direct_uses_of_time(module.read_text()))}
    assert not found


@pytest.mark.parametrize(
    "line",
    [
        "import time",
        "from time import monotonic",
        "from asyncio import sleep",
        "asyncio.sleep(0.1)",
        "asyncio.timeout(1)",
        "asyncio.wait_for(task, 1)",
        "asyncio.wait(tasks, timeout=1)",
        "asyncio.get_running_loop().call_later(1, call)",
        "loop.time()",
        "datetime.now(UTC)",
    ],
)
def test_every_way_to_take_the_time_from_elsewhere_is_found(line):
    assert direct_uses_of_time(line)

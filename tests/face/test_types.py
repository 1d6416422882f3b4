"""What a type checker sees: `submit` takes the function's own arguments and gives a handle of its result."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TYPED = HERE / "typed.py"
REFUSED = re.compile(r"# refused: (?P<codes>[\w, -]+)$")
ERROR = re.compile(r"typed\.py:(?P<line>\d+): error: .*\[(?P<code>[\w-]+)\]$")


def test_submit_is_typed_by_the_task_s_function():
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", ".mypy_cache/face", str(TYPED)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.stderr == ""
    found: dict[int, set[str]] = {}
    for line in ran.stdout.splitlines():
        if " error: " in line:
            error = ERROR.search(line)
            assert error, f"an error elsewhere: {line}"
            found.setdefault(int(error["line"]), set()).add(error["code"])
    expected = {
        number: set(refused["codes"].split(", "))
        for number, line in enumerate(TYPED.read_text(encoding="utf-8").splitlines(), 1)
        if (refused := REFUSED.search(line))
    }
    assert found.keys() == expected.keys(), ran.stdout
    assert all(codes <= expected[line] for line, codes in found.items()), ran.stdout

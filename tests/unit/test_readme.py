"""The script in README is run as a reader would run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_script_in_readme_works(tmp_path):
    [script] = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-W", "error", "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.strip() == re.search(r"print\(.*# (.*)$", script, re.MULTILINE)[1]
    assert (tmp_path / "jobs.db").stat().st_size > 0

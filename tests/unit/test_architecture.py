"""The pictures of the architecture are those that the code draws now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_pictures_show_the_layers_and_modules_that_there_are():
    command = [sys.executable, str(ROOT / "docs" / "pictures" / "architecture.py"), "--check"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr

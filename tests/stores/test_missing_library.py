"""A URL whose library is not installed: a sentence that says how to get it."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import sys
sys.modules[{library!r}] = None  # an import of it fails, as where it is not installed
from daybreak.cli import main
sys.argv = ["daybreak", "--url", {url!r}, "doctor"]
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("library", "url", "extra"),
    [
        ("psycopg", "postgresql://nobody@127.0.0.1:1/x", "daybreak[postgres]"),
        ("hiredis", "redis://127.0.0.1:1", "daybreak[redis]"),
    ],
)
def test_a_store_without_its_library_says_how_to_get_it(library, url, extra, tmp_path):
    program = WITHOUT.format(library=library, url=url)
    told = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=False, text=True)
    assert told.returncode != 0
    assert extra in told.stderr
    assert "should not have happened" not in told.stderr

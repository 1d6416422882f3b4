"""A large input in flat memory, stored once: 1 GB in the long form, 64 MB else. With a folder and in the store."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LONG = os.environ.get("DAYBREAK_TORTURE") == "long"
SIZE = 1024**3 if LONG else 64 * 1024**2
IN_STORE = 256 * 1024**2  # at most, in a SQLite file, where every part is a transaction
GROWTH = 48 * 1024  # KiB of memory that a file of any size may cost a process
JOBS = 20

PROGRAM = """
import os, resource, sys
from pathlib import Path
from daybreak import Daybreak, File

app = Daybreak()


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@app.task
def look(model: File) -> list:
    first = peak()
    with open(model, "rb") as file:
        file.seek(-4, 2)
        return [file.read().hex(), model.size, first]


@app.task
def nothing() -> int:
    return peak()


if __name__ == "__main__":
    small = Path("small")
    small.write_bytes(b"tiny")
    with app.worker(processes=1):
        look.submit(File(small)).result("60s")  # everything is imported and open
        before, child_before = peak(), nothing.submit().result("60s")
        model = File(sys.argv[1])
        jobs = look.submit_many([{"model": model}] * int(sys.argv[2]))
        Path(sys.argv[1]).unlink()
        seen = [job.result("600s") for job in jobs]
    assert {tuple(one[:2]) for one in seen} == {("656e642e", int(sys.argv[3]))}, seen
    print(peak() - before, max(one[2] for one in seen) - child_before)
"""


@pytest.mark.torture
@pytest.mark.parametrize("place", ["folder", "store"])
def test_a_large_file_is_pinned_in_flat_memory_and_stored_once(tmp_path, tell, place):
    size = min(SIZE, IN_STORE) if place == "store" else SIZE
    (tmp_path / "program.py").write_text(PROGRAM)
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        file.truncate(size - 4)
        file.seek(0, os.SEEK_END)
        file.write(b"end.")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("DAYBREAK_")},
        "DAYBREAK_FILES_CACHE": str(tmp_path / "cache"),
        **({"DAYBREAK_FILES": "store"} if place == "store" else {}),
    }
    ended = subprocess.run(
        [sys.executable, "program.py", "large.bin", str(JOBS), str(size)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    parent, child = map(int, ended.stdout.split())
    grown = f"{parent / 1024:.1f} MiB in the submitter and worker, {child / 1024:.1f} MiB in a child"
    tell(f"{size / 1e6:.0f} MB in a {place}: {grown}")
    assert parent < GROWTH
    assert child < GROWTH
    folder = tmp_path / ("cache" if place == "store" else "daybreak.db-files")
    assert sorted(path.stat().st_size for path in folder.rglob("content")) == [4, size]

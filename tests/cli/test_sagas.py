"""`daybreak sagas`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from daybreak import Daybreak, Saga


@pytest.fixture
def stuck(tmp_path):
    """A saga whose first step cannot be undone, unless a file is there."""
    app = Daybreak(f"sqlite:///{tmp_path}/jobs.db")
    may = tmp_path / "may"

    @app.task
    def allocate(context: dict) -> dict:
        return {"slot": 3}

    @app.task(retry=1)
    def release(context: dict) -> None:
        if not may.exists():
            raise ValueError("still used")

    @app.task(retry=1)
    def create(context: dict) -> None:
        raise ValueError("no pod")

    saga = Saga("execute", undo_tries=1).step(allocate, undo=release).step(create)
    with app, app.worker(isolation="thread"):
        run = saga.start({"user": "ann"}, id="order-17")
        assert run.wait("60s").state == "stuck"
        yield app, run, may


def daybreak(tmp_path, *words):
    found = subprocess.run(
        [sys.executable, "-m", "daybreak.cli", "sagas", *words, "--url", str(tmp_path / "jobs.db")],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return found.returncode, found.stdout, found.stderr


def test_a_stuck_saga_is_listed_shown_and_resumed(stuck, tmp_path):
    _, run, may = stuck
    code, out, err = daybreak(tmp_path, "--state", "stuck")
    assert (code, "order-17" in out) == (0, True)
    assert "daybreak sagas resume order-17" in err
    code, out, _ = daybreak(tmp_path, "show", "order-17")
    assert code == 0
    assert "create: error: ValueError: no pod; undoing allocate failed: error: ValueError: still used" in out
    assert "undo allocate" in out
    code, _, err = daybreak(tmp_path, "show", "order-71")
    assert (code, "did you mean 'order-17'" in err) == (4, True)
    may.touch()
    assert daybreak(tmp_path, "resume", "order-17")[0] == 0
    assert run.wait("60s").state == "compensated"
    code, out, _ = daybreak(tmp_path, "show", "order-17", "--json")
    view = json.loads(out)
    assert (view["state"], view["context"]) == ("compensated", {"user": "ann", "slot": 3})
    assert [step["state"] for step in view["steps"]] == ["undone", "failed"]
    code, _, err = daybreak(tmp_path, "resume", "order-17")
    assert (code != 0, "only one that is stuck can be resumed" in err) == (True, True)
    assert daybreak(tmp_path, "cancel", "order-17")[0] == 0
    assert "No saga is stuck." in daybreak(tmp_path, "--state", "stuck")[1]

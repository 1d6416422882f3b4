"""`daybreak sagas`."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from daybreak import Daybreak, Saga
from daybreak.cli.doctor.sagas import about_sagas
from daybreak.cli.session import Session
from daybreak.core.model import Done
from daybreak.policy.settle import settle
from daybreak.store.protocol import Claim, Exchange


@pytest.fixture
def stuck(tmp_path, request):
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
        run = saga.start({"user": "ann"}, id=getattr(request, "param", "order-17"))
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


@pytest.mark.parametrize("stuck", ["-17", "17 'b'"], indirect=True)
def test_the_command_that_resumes_a_saga_can_be_typed_whatever_its_id_is(stuck, tmp_path):
    _, run, may = stuck
    told, cure = shlex.split(run.info().resume_command), shlex.split(doctor(tmp_path)[0][1])
    assert told == [word for word in cure if word not in ("--url", str(tmp_path / "jobs.db"))]
    may.touch()
    subprocess.run([sys.executable, "-m", "daybreak.cli", *cure[1:]], cwd=tmp_path, timeout=60, check=True)
    assert run.wait("60s").state == "compensated"


def doctor(tmp_path):
    found = subprocess.run(
        [sys.executable, "-m", "daybreak.cli", "doctor", "--json", "--url", str(tmp_path / "jobs.db")],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    findings = json.loads(found.stdout)["findings"]
    return [(one["what"], one["cure"] or "") for one in findings if "saga" in one["what"]]


def test_the_doctor_names_a_stuck_saga_and_its_command(stuck, tmp_path):
    app, run, may = stuck
    assert app.saga("other").step(app.find_task("allocate")).start(id="fine").wait("60s").state == "completed"
    [(what, cure)] = doctor(tmp_path)
    assert what.startswith("saga order-17 (execute) got stuck ")
    assert what.endswith(": step allocate cannot be undone: error: ValueError: still used")
    assert cure == f"daybreak sagas resume order-17 --url {tmp_path}/jobs.db"
    may.touch()
    run.resume()
    run.wait("60s")
    assert doctor(tmp_path) == []


def test_the_doctor_notices_that_nothing_drives_a_saga(tmp_path):
    async def read(client, later):
        now = datetime.now(UTC) + later
        return [(one.what, one.is_well) async for one in about_sagas(client, Session(), now)]

    async def story():
        app = Daybreak(f"sqlite:///{tmp_path}/jobs.db")

        @app.task
        def one(context: dict) -> None: ...

        saga = app.saga("s").step(one).step(app.task(name="two")(lambda context: None))
        await saga.astart(id="r")
        client, day = await app.client(), timedelta(days=1)
        assert await read(client, day) == [("1 saga under way", True)], (
            "its job waits for a worker: that is another case"
        )
        [lease] = (await client.store.exchange(Exchange(claim=Claim(worker="w", lease_for=day)))).leases
        await client.store.exchange(Exchange(settle=[settle(lease, Done(b"{}"), chance=0.5, by="w")]))
        assert await read(client, timedelta()) == [("1 saga under way", True)]
        [(what, is_well)] = await read(client, day)
        assert (what, is_well) == ("1 saga waits though the job of the step has ended: nothing drives sagas", False)
        await app.aclose()

    asyncio.run(story())

"""`daybreak finish`, and what the other commands say of a job whose work goes on elsewhere."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from daybreak.core.model import State
from daybreak.store.protocol import Beat


@pytest.fixture
def detached(place):
    """A job that goes on elsewhere, with fence 1."""
    job = place.run(retry=2)

    async def detach(client):
        found = await client.get(job)
        beat = Beat(seq=found.seq, fence=found.fence, lease_for=timedelta(hours=24), detach=True)
        assert (await client.store.extend([beat]))[0].held

    place.do(detach)
    return job


def test_a_job_is_finished_from_the_shell(cli, place, detached):
    said = cli("finish", detached, "--fence", "1", "--result", '{"pages": 3}').stdout
    assert said == f"{detached}: attempt 1 ended, the job is completed\n"
    assert place.get(detached).result == b'{"pages":3}'
    again = cli("finish", detached, "--fence", "1", "--result", '{"pages": 3}', "--json").stdout
    assert json.loads(again) == {"id": detached, "state": "completed", "attempt": 1, "fence": 1, "repeated": True}


def test_a_failed_attempt_is_retried_unless_it_is_permanent(cli, place, detached):
    said = cli("finish", detached, "--fence", "1", "--error", "the pod was evicted").stdout
    assert "the job is scheduled" in said
    refused = cli("finish", detached, "--fence", "1", "--error", "another", "--permanent", code=1)
    assert "the attempt with fence 1 is over: it failed, and is retried" in refused.stderr
    assert place.get(detached).state is State.SCHEDULED


def test_a_result_is_read_from_a_file_or_from_standard_input(cli, place, tmp_path, detached):
    (tmp_path / "result.json").write_text("[1, 2]")
    cli("finish", detached, "--fence", "1", "--result", "@result.json")
    assert place.get(detached).result == b"[1,2]"
    again = cli("finish", detached, "--fence", "1", "--result", "@-", stdin="[1, 2]")
    assert "as before" in again.stdout


def test_a_file_that_cannot_be_read_is_named_and_not_taken_for_bad_json(cli, place, detached):
    refused = cli("finish", detached, "--result", "@missing.json", code=2)
    assert refused.stderr == "Error: --result: cannot read missing.json: No such file or directory\n"
    assert place.get(detached).detached


@pytest.mark.parametrize(("words", "says"), [
    (("--result", "done"), "a text needs quotes"), (("--fence", "0"), "0"), (("--permanent",), "permanent"),
    (("--cancelled", "--timed-out"), "one way"), (("--error", "no", "--result", "1"), "one way"),
])  # fmt: skip
def test_an_outcome_that_makes_no_sense_is_refused(cli, place, detached, words, says):
    refused = cli("finish", detached, *words, code=2)
    assert says in refused.stderr
    assert place.get(detached).detached


def test_the_result_is_checked_by_the_task_if_the_app_is_known(cli, place, tmp_path, detached):
    (tmp_path / "tasks.py").write_text(
        "from daybreak import Daybreak\napp = Daybreak()\n\n@app.task(name='mail')\ndef mail() -> int: ...\n"
    )
    refused = cli("--app", "tasks.py:app", "finish", detached, "--fence", "1", "--result", '"many"', code=2)
    assert "result" in refused.stderr
    cli("--app", "tasks.py:app", "finish", detached, "--fence", "1", "--result", "7")
    assert place.get(detached).result == b"7"


def test_commands_say_that_a_job_goes_on_elsewhere(cli, place, detached):
    shown = cli("jobs", "show", detached).stdout
    assert "elsewhere" in shown
    assert "no worker has it" in shown
    assert "deadline" in shown
    assert f"Finish it with: daybreak finish {detached} --fence 1" in shown
    why = cli("why", detached).stdout
    assert "goes on elsewhere, deadline in" in why
    assert "goes on elsewhere" in cli("jobs", "--state", "running").stdout
    assert json.loads(cli("jobs", "show", detached, "--json").stdout)["detached_until"] is not None
    assert "goes on elsewhere" in cli("jobs", "stack", detached, code=1).stderr
    place.worker("mail")
    assert "elsewhere" not in cli("doctor", code=None).stdout  # nothing is wrong


def test_a_detached_job_is_cancelled_at_once(cli, place, detached):
    assert cli("jobs", "cancel", detached).stdout == f"{detached} cancelled\n"
    assert place.get(detached).state is State.CANCELLED
    assert "was cancelled" in cli("finish", detached, "--fence", "1", code=1).stderr


def test_a_released_detached_job_waits_again(cli, place, detached):
    assert "now queued" in cli("jobs", "release", detached).stdout
    assert "was released" in cli("finish", detached, "--fence", "1", code=1).stderr


def test_move_leaves_a_detached_job_where_it_is(cli, place, tmp_path, detached):
    place.submit()
    said = cli("move", "--no-wait", "--to", f"sqlite:///{tmp_path}/other.db", code=None)
    assert "1 running" in said.output
    assert place.get(detached).detached

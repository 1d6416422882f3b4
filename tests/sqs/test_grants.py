"""What a job may reach where it runs is made when the job is sent, and is nowhere but in its message."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from sqs_tasks import add

from daybreak import Retry
from daybreak.core.errors import TargetNotFound
from daybreak.core.metadata import decode_meta
from daybreak.core.model import Failed, Failure
from daybreak.sqs import dispatcher, grants
from daybreak.worker.target import load_function


async def test_a_grant_comes_with_the_lease_and_is_new_for_each_fence(stage):
    asked = []

    def grant(request):
        asked.append(request)
        return {"put": f"https://bucket/{request.args['a']}/{request.fence}"}

    await stage.dispatcher(grant=grant)
    player = await stage.player()
    job = add.using(retry=Retry(attempts=3, delay="50ms")).submit(7, 2)
    first = await player.take_one()
    await player.end(first, Failed(Failure(message="down", verdict="transient")))
    second = await player.take_one()
    assert [decode_meta(one.spec.meta)["grant"]["put"] for one in (first, second)] == [
        "https://bucket/7/1",
        "https://bucket/7/2",
    ]
    assert [(one.job, one.task, one.fence) for one in asked] == [(job.id, "add", 1), (job.id, "add", 2)]
    assert "grant" not in (await stage.job(job)).spec.meta


@pytest.mark.parametrize("broken", [{"raises": 1}, {"no": object()}, {"text": "x" * grants.MAX_LENGTH}])
async def test_a_job_whose_grant_fails_is_handed_back_uncharged(stage, caplog, monkeypatch, broken):
    monkeypatch.setattr(dispatcher, "RETRY_IN", timedelta(milliseconds=100))
    wrong = [broken]

    def grant(request):
        answer = wrong.pop() if wrong else {}
        if "raises" in answer:
            raise PermissionError("no key to sign with")
        return answer

    with caplog.at_level(logging.ERROR, "daybreak.sqs"):
        await stage.dispatcher(grant=grant)
        player = await stage.player()
        add.submit(1, 2)
        lease = await player.take_one()
    assert lease.attempt == 1
    assert lease.fence >= 2
    assert "is not sent" in caplog.text


def test_a_target_that_names_no_function_is_refused(tmp_path):
    (tmp_path / "signing.py").write_text("key = 3\n")
    for target in (f"{tmp_path}/signing.py", f"{tmp_path}/signing.py:key", f"{tmp_path}/signing.py:sign"):
        with pytest.raises(TargetNotFound, match="function"):
            load_function(target)

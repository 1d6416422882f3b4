"""The nouns as they are printed: what a job was given and what it returned may hold secrets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from daybreak.core.model import Done, HandedBack, Job, JobSpec, Lease, Settlement, State, Suspended

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
KEPT = b'{"token":{"$":["secret","hunter2"]}}'
SPEC = JobSpec(id="a", task="login", args=KEPT)
LEASE = Lease(
    seq=1, spec=SPEC, fence=1, attempt=1, priority=5, worker="w", until=NOON, lease_for=timedelta(seconds=7),
    started_at=NOON, created_at=NOON, checkpoint=KEPT,
)  # fmt: skip
NOUNS = [
    SPEC,
    Job(
        spec=SPEC,
        seq=1,
        state=State.COMPLETED,
        priority=5,
        created_at=NOON,
        updated_at=NOON,
        checkpoint=KEPT,
        result=KEPT,
    ),
    LEASE,
    Done(KEPT),
    Suspended("held", KEPT),
    HandedBack(KEPT),
    Settlement(
        seq=1, job="a", fence=1, state=State.COMPLETED, attempt=1, result=KEPT, checkpoint=KEPT, inserts=(SPEC,)
    ),
]


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: type(noun).__name__)
def test_whoever_prints_a_job_sees_how_many_bytes_it_holds_and_none_of_them(noun):
    rich = dict(noun.__rich_repr__())
    for told in (repr(noun), str(noun), repr(rich)):
        assert "hunter2" not in told
        assert f"=<{len(KEPT)} bytes>" in told or f": <{len(KEPT)} bytes>" in told
    assert tuple(rich) == noun.__struct_fields__


def test_all_else_of_a_noun_is_printed_as_it_is():
    assert repr(Done(b"{}", 1.5)) == "Done(result=<2 bytes>, ran=1.5, note='')"
    assert repr(Done()) == "Done(result=None, ran=0.0, note='')"
    assert repr(SPEC).startswith(f"JobSpec(id='a', task='login', args=<{len(KEPT)} bytes>, queue='default', version=1,")

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from daybreak.core.errors import BadInput, TooLarge, Unsupported
from daybreak.core.model import JobSpec, Need, Options
from daybreak.policy.admit import ARGS_LIMIT, NAME_LIMIT, TAGS_LIMIT, admit, digest

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
NONE = frozenset[str]()
ALL = frozenset({"resources", "dependencies", "batches", "cache", "deadlines"})


def spec(**said) -> JobSpec:
    return JobSpec(**{"id": "j", "task": "t", **said})


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"args": b"x" * ARGS_LIMIT},
        {"task": "x" * NAME_LIMIT},
        {"queue": "größe/№ 7 🌅"},
        {"tags": ("a",) * TAGS_LIMIT},
        {"meta": {"note": "two\nlines of any length " * 100}},
        {"version": 0},
        {"version": 2**31 - 1},
        {"delay": timedelta()},
        {"run_at": NOON},
        {"priority": 10},
    ],
)
def test_what_can_be_kept_is_let_in_unchanged(said):
    wanted = spec(**said)
    assert admit(wanted, NONE) is wanted


@pytest.mark.parametrize(
    ("said", "error", "why"),
    [
        ({"task": ""}, BadInput, "its task is empty; a job needs a task, a queue and an id"),
        ({"queue": ""}, BadInput, "is empty; a job needs a task, a queue and an id"),
        ({"id": ""}, BadInput, "is empty; a job needs a task, a queue and an id"),
        ({"task": None}, BadInput, "is empty; a job needs a task, a queue and an id"),
        ({"task": 7}, BadInput, "task: 7 is not text"),
        ({"owner": b"ann"}, BadInput, "owner: b'ann' is not text"),
        ({"task": "x" * (NAME_LIMIT + 1)}, TooLarge, "task: the name has 201 characters, the limit is 200"),
        ({"queue": "a\nb"}, BadInput, r"queue: 'a\\nb' contains the control character '\\n'; a name is printable text"),
        ({"key": "a\0"}, BadInput, "key: .* control character"),
        ({"unique": "\x1b[31m"}, BadInput, "unique: .* control character"),
        ({"run": "\x7f"}, BadInput, "run: .* control character"),
        ({"by": "\ud800"}, BadInput, "by: .* control character"),
        ({"tags": ("fine", "not\tfine")}, BadInput, "tag: .* control character"),
        ({"tags": ("a",) * (TAGS_LIMIT + 1)}, TooLarge, "the limit is 50 each"),
        ({"meta": {str(n): "" for n in range(TAGS_LIMIT + 1)}}, TooLarge, "the limit is 50 each"),
        ({"meta": {"n": 7}}, BadInput, "meta 'n': 7 is not text"),
        ({"meta": {"n": None}}, BadInput, "meta 'n': None is not text"),
        ({"meta": {7: "n"}}, BadInput, "meta: 7 is not text"),
        ({"meta": {"n": "\ud800"}}, BadInput, "meta 'n': .* unpaired surrogate"),
        (
            {"args": b"x" * (ARGS_LIMIT + 1)},
            TooLarge,
            "have 1,048,577 bytes, the limit is 1,048,576; pass the name of a file",
        ),
        ({"priority": 11}, BadInput, "priority 11 is not an integer from 0 to 10"),
        ({"priority": -1}, BadInput, "priority -1 is not an integer from 0 to 10"),
        ({"priority": "high"}, BadInput, "priority 'high' is not an integer from 0 to 10"),
        ({"priority": True}, BadInput, "priority True is not an integer from 0 to 10"),
        ({"version": -1}, BadInput, "version -1 must be an integer from 0"),
        ({"version": 2**31}, BadInput, "version 2147483648 must be an integer"),
        ({"version": "2"}, BadInput, "version '2' must be an integer"),
        ({"delay": timedelta(1), "run_at": NOON}, BadInput, "give delay or run_at, not both"),
        ({"delay": timedelta(-1)}, BadInput, "job 't': delay: .* out of range"),
        ({"delay": 5}, BadInput, "job 't': delay: a bare number has no unit"),
        ({"run_at": NOON.replace(tzinfo=None)}, BadInput, "job 't': run_at: .* has no time zone"),
        ({"options": Options(timeout=timedelta())}, BadInput, "timeout must be longer than 0"),
        ({"options": Options(expires_in=timedelta())}, BadInput, "expires_in must be longer than 0"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_reason(said, error, why):
    with pytest.raises(error, match=why):
        admit(spec(**said), NONE)


@pytest.mark.parametrize(
    ("said", "feature"),
    [
        ({"options": Options(resources=(Need("plecs"),))}, "resources"),
        ({"after": ("other",)}, "dependencies"),
        ({"batch": "b"}, "batches"),
        ({"flight": "f"}, "cache"),
        ({"deadline": NOON}, "deadlines"),
    ],
)
def test_a_feature_is_refused_unless_the_store_offers_it(said, feature):
    with pytest.raises(Unsupported, match=f"needs {feature}, which this store does not support"):
        admit(spec(**said), ALL - {feature})
    assert admit(spec(**said), ALL)


def test_a_store_without_a_cache_says_how_to_submit_all_the_same():
    with pytest.raises(Unsupported, match=r"submit with using\(cache=False\), or use SQLite$"):
        admit(spec(flight="f"), ALL - {"cache"})


def test_same_content_is_the_task_its_version_its_queue_and_its_arguments():
    one = spec(args=b"{}", version=1, queue="q")
    assert digest(one) == digest(msgspec.structs.replace(one, id="other", priority=0, owner="bob"))
    for change in ({"args": b"[]"}, {"version": 2}, {"queue": "r"}, {"task": "u"}):
        assert digest(one) != digest(msgspec.structs.replace(one, **change))

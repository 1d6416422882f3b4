"""Options are typed in one list each; a misspelt one, or another library's word, is answered with the right one."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime

import pytest

from daybreak import Adaptive, BadInput, Cache, Client, Options
from daybreak.core.errors import Unsupported
from daybreak.policy.parse_options import SUBMIT_OPTIONS, build_spec, parse_options
from daybreak.stores.memory import MemoryStore
from daybreak.tasks.options import JOB_OPTIONS, TASK_OPTIONS, WORKER_OPTIONS
from daybreak.tasks.registry import Definition
from daybreak.worker.settings import WorkerSettings


@pytest.fixture
def task(app):
    return app.task(lambda_free)


def lambda_free(n: int = 0) -> int:
    return n


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"prioritty": 1}, "using() has no option 'prioritty'; did you mean 'priority'?"),
        ({"eta": 1}, "using() has no option 'eta'; did you mean run_at=datetime(..., tzinfo=UTC), or delay='10m'?"),
        ({"countdown": 10}, "did you mean delay='10s'?"),
        ({"expires": 60}, "did you mean expires_in='1h'?"),
        ({"retries": 3}, "did you mean retry=3, which counts the first attempt"),
        ({"max_retries": 3}, "did you mean retry=3"),
        ({"timeout_seconds": 3}, "did you mean timeout='10m'?"),
        ({"time_limit": 3}, "did you mean timeout='10m'?"),
        ({"job_timeout": 3}, "did you mean timeout='10m'?"),
        ({"result_ttl": 3}, "did you mean keep='7d'?"),
        ({"job_id": "a"}, "did you mean id='...'"),
        ({"version": 2}, "using() has no option 'version'; it is an option of the task: @app.task(version=...)"),
        ({"zzzzzz": 2}, "using() has no option 'zzzzzz'; the options are cache, delay, expires_in"),
    ],
)
def test_a_misspelt_option_of_a_job_is_told_the_right_word(task, said, told):
    with pytest.raises(BadInput) as refused:
        task.using(**said)
    assert told in str(refused.value)


@pytest.mark.parametrize("word", ["depends_on", "after"])
def test_what_is_not_there_yet_says_so(app, task, word):
    with pytest.raises(Unsupported, match=rf"using\(\) has no option '{word}' yet"):
        task.using(**{word: "x"})
    with pytest.raises(Unsupported, match=rf"task\(\) has no option '{word}' yet"):
        app.task(**{word: "x"})


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"retires": 3}, "task() has no option 'retires'; did you mean 're"),
        ({"max_retries": 3}, "did you mean retry=3"),
        ({"bind": True}, "did you mean a first parameter that is annotated Context?"),
        ({"queue_name": "x"}, "did you mean queue='...'?"),
        ({"rate_limit": "10/m"}, "did you mean resource=Resource('...', rate='10/s')?"),
        ({"delay": "1m"}, "task() has no option 'delay'; it is an option of single jobs: task.using(delay=...)"),
    ],
)
def test_a_misspelt_option_of_a_task_is_told_the_right_word(app, said, told):
    with pytest.raises(BadInput) as refused:
        app.task(**said)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"proceses": 3}, "a worker has no option 'proceses'; did you mean 'processes'?"),
        ({"concurrency": 3}, "did you mean processes=4, or async_jobs=100?"),
        ({"burst": True}, "did you mean until_idle=True?"),
    ],
)
def test_a_misspelt_option_of_a_worker_is_told_the_right_word(app, said, told):
    with pytest.raises(BadInput) as refused:
        app.worker(**said)
    assert told in str(refused.value)


def test_every_option_of_a_job_reaches_its_spec():
    noon = datetime(2031, 1, 1, 12, tzinfo=UTC)
    options = {
        "priority": "high", "queue": "q", "delay": "1m", "run_at": noon, "expires_in": "2m", "key": "k", "unique": "u",
        "unique_while": "waiting", "on_conflict": "raise", "tags": ["t"], "meta": {"a": "b"}, "owner": "ann",
        "run": "r", "retry": 7, "timeout": "3m", "hang": "30s", "keep": "4m", "id": "i",
    }  # fmt: skip
    assert options.keys() == SUBMIT_OPTIONS
    plain = build_spec("t", b"{}", {}, new_id="new")
    for name, value in options.items():
        assert build_spec("t", b"{}", {name: value}, new_id="new") != plain, name
    for name in options.keys() - {"priority", "queue", "unique_while", "on_conflict", "tags"}:
        assert build_spec("t", b"{}", {name: None}, new_id="new") == plain, name


@pytest.mark.parametrize("name", ["priority", "unique_while", "on_conflict", "tags"])
def test_none_is_refused_where_it_could_hide_a_mistake(name):
    with pytest.raises(BadInput, match=f"{name}=None|None is not a {name}"):
        build_spec("t", b"{}", {name: None}, new_id="new")


def test_every_option_is_one_that_is_read():
    of_a_task = {*Definition.OWN, *inspect.signature(parse_options).parameters, *Options.__struct_fields__}
    assert of_a_task >= TASK_OPTIONS
    assert set(WorkerSettings.__struct_fields__) == WORKER_OPTIONS
    assert {"resource", "tx", "cache"} == JOB_OPTIONS - SUBMIT_OPTIONS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priorty": 1}, "submit() has no option 'priorty'; did you mean 'priority'?"),
        ({"countdown": 3}, "submit() has no option 'countdown'; did you mean delay='10s'?"),
        ({"resource": "r"}, "it is an option of a task: task.using(resource=...) or @app.task(resource=...)"),
    ],
)
def test_a_misspelt_option_of_a_client_is_answered_with_the_right_one(options, message):
    with pytest.raises(BadInput) as refused:
        Client(MemoryStore()).spec("t", **options)
    assert message in str(refused.value)


def test_every_option_of_a_task_reaches_its_definition(app):
    said = {
        "name": "other", "version": 2, "aliases": "old", "queue": "q", "priority": "high", "retry": 7,
        "timeout": Adaptive("1m", 2.0, 3), "expires_in": "2m", "keep": "3m", "hang": "30s",
        "deaths": 5, "resource": "r", "fail_fast": True, "cache": True,
    }  # fmt: skip
    assert said.keys() == TASK_OPTIONS
    made = app.task(**said)(lambda_free).definition
    assert (made.name, made.version, made.aliases, made.queue) == ("other", 2, ("old",), "q")
    assert (made.priority, made.resource) == (2, "r")
    of = made.options
    assert (of.retry.attempts, of.escalate, of.escalate_after, of.adaptive, of.deaths) == (7, 2.0, 3, True, 5)
    assert [s.total_seconds() for s in (of.timeout, of.expires_in, of.keep_failed, of.hang)] == [60, 120, 180, 30]
    assert of.fail_fast
    assert made.cache == Cache()

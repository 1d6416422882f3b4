"""Every blocking method has an async twin, and the other way round."""

from __future__ import annotations

import inspect

import pytest

from daybreak import BatchTask, Daybreak, JobHandle, Task
from daybreak.api.cache import CacheHandle
from daybreak.api.locks import Lock
from daybreak.api.locks.slots import ResourceHandle
from daybreak.api.portal import BlockingIterator
from daybreak.api.queues import LeaseHandle, QueueHandle
from daybreak.api.schedules import ScheduleHandle
from daybreak.runs.run import Run
from daybreak.sagas.saga import Saga
from daybreak.sagas.saga_run import SagaRun
from daybreak.testing import Inline

FACES = [
    Task,
    BatchTask,
    JobHandle,
    QueueHandle,
    LeaseHandle,
    ResourceHandle,
    Lock,
    Run,
    ScheduleHandle,
    Saga,
    CacheHandle,
    SagaRun,
    Daybreak,
    Inline,
]

# Names that no letter tells apart: wait would be await, a word of the language.
SPECIAL = {"await_": "wait"}
# Blocks for ever by purpose, in a process of its own, with its signals; inside a loop there is aworker().
ALONE = {Daybreak: {"run_worker"}}
# Async, and nothing else: what belongs to the running loop.
ASYNC_ONLY = {Daybreak: {"client", "file_store"}}
# Neither asks anything of a store.
PLAIN = {
    Task: {"using", "upgrade"},
    BatchTask: {"using"},
    Daybreak: {
        "use", "task", "batch_task", "find_task", "setup", "wrap", "lifespan", "on", "job", "queue", "resource", "lock",
        "retrying", "rule", "limit_time", "watch", "schedule", "find_schedule", "saga", "find_saga", "bridge",
        "worker_command", "worker_settings", "run_worker",
    },
    Saga: {"step"},
    LeaseHandle: {"on_extended"},
    QueueHandle: {"on"},
    Inline: {"accepted"},
    Lock: {"check"},
    ResourceHandle: {"slot"},
}  # fmt: skip


def methods(face: type) -> dict[str, object]:
    return {name: member for name, member in vars(face).items() if not name.startswith("_") and callable(member)}


def is_async(member: object) -> bool:
    returns = str(inspect.signature(member).return_annotation)
    return inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member) or "AsyncContextManager" in returns


def twins(face: type) -> list[tuple[str, str]]:
    """(blocking, async) of every async method."""
    found = [name for name, member in methods(face).items() if is_async(member)]
    return [(SPECIAL.get(name, name.removeprefix("a")), name) for name in found if name not in ASYNC_ONLY.get(face, ())]


PAIRS = [(face, *pair) for face in FACES for pair in twins(face)]


@pytest.mark.parametrize(("face", "blocking", "asynchronous"), PAIRS, ids=lambda x: getattr(x, "__name__", x))
def test_an_async_method_has_a_blocking_twin_with_its_signature(face, blocking, asynchronous):
    assert asynchronous in SPECIAL or asynchronous.startswith("a")
    assert blocking in methods(face), f"{face.__name__}.{asynchronous} has no twin {blocking}"
    ours, theirs = (inspect.signature(methods(face)[name]) for name in (blocking, asynchronous))
    assert list(ours.parameters.values()) == list(theirs.parameters.values())
    assert inspect.getdoc(methods(face)[blocking]) or not inspect.getdoc(methods(face)[asynchronous])


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_a_blocking_method_has_an_async_twin(face):
    paired = {name for pair in twins(face) for name in pair}
    alone = methods(face).keys() - paired - PLAIN.get(face, set()) - ASYNC_ONLY.get(face, set())
    assert alone == set()


def test_the_faces_were_looked_at():
    assert len(PAIRS) >= 39
    assert (JobHandle, "wait", "await_") in PAIRS
    assert (QueueHandle, "take", "atake") in PAIRS
    assert (Daybreak, "worker", "aworker") in PAIRS
    assert (Task, "submit", "asubmit") in PAIRS


def test_what_is_plain_is_there():
    for face, names in PLAIN.items():
        assert names <= methods(face).keys()
    for face, names in ALONE.items():
        assert names <= PLAIN[face]


def test_a_blocking_iterator_is_the_twin_of_an_async_one(app):
    assert isinstance(app.as_completed([]), BlockingIterator)
    assert list(app.as_completed([])) == []
    assert isinstance(app.find(), BlockingIterator)

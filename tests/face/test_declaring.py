"""What is declared wrongly is refused where it is declared, not at the first job."""

from __future__ import annotations

import contextlib
import functools

import pytest

from daybreak import Adaptive, Context, JobFailed, Retry, Transient
from daybreak.core.errors import BadInput
from daybreak.testing import inline


class Adder:
    def __call__(self, a: int) -> int:
        return a + 1


def add(a: int, b: int) -> int:
    return a + b


# -- tasks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"version": "1"}, "version '1' must be an integer"),
        ({"version": -1}, "version -1 must be an integer"),
        ({"version": True}, "version True must be an integer"),
        ({"deaths": 0}, "deaths=0 must be an integer of 1 or more"),
        ({"timeout": Adaptive("4s", escalate=0.1)}, "escalate=0.1 must be a number from 1 to 100"),
        ({"timeout": Adaptive("4s", escalate="2")}, "escalate='2' must be a number from 1 to 100"),
        ({"timeout": Adaptive("4s", escalate_after=0)}, "escalate_after=0 must be"),
        ({"timeout": Adaptive("0s")}, "timeout must be longer than 0"),
        ({"hang": "1ms"}, "write 1s or more"),
        ({"timeout": "0s"}, "timeout must be longer than 0"),
        ({"expires_in": "0s"}, "expires_in must be longer than 0"),
        ({"fail_fast": 1}, "fail_fast=1 must be True or False"),
        ({"queue": ""}, "the name of its queue is empty"),
        ({"aliases": ("",)}, "one of its aliases is empty"),
    ],
)
def test_an_option_that_cannot_be_right_is_refused_at_the_decorator_naming_the_task(app, said, told):
    with pytest.raises(BadInput, match="task 'add': ") as refused:
        app.task(**said)(add)
    assert told in str(refused.value)
    assert "add" not in app.program


@pytest.mark.parametrize("name", [None, "named"])
@pytest.mark.parametrize("given", [functools.partial(add, 1), Adder()], ids=["partial", "object"])
def test_what_has_no_name_of_its_own_is_no_task(app, given, name):
    with pytest.raises(BadInput, match="define a function at the top of a module"):
        app.task(name=name)(given)


def test_a_function_that_others_wrapped_is_a_task(app):
    @functools.cache
    def square(n: int) -> int:
        return n * n

    @functools.wraps(add)
    def logged(*args: int, **kwargs: int) -> int:
        return add(*args, **kwargs)

    squared, added = app.task(square), app.task(logged)
    with inline(app):
        assert squared.submit(3).result() == 9
        assert added.submit(1, 2).result() == 3


# -- around jobs -------------------------------------------------------------------------------------------------------


async def yields_async(ctx: Context):
    yield


def yields_not(ctx: Context) -> None: ...


async def awaits(ctx: Context) -> None: ...


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (yields_async, "wrap 'yields_async' is async.*: write def instead of async def"),
        (contextlib.asynccontextmanager(yields_async), "wrap 'yields_async' is async"),
        (awaits, "wrap 'awaits' neither yields nor returns a context manager: "),
        (3, "3 is not a function: write @app.wrap above a def"),
    ],
)
def test_a_wrap_that_would_fail_every_job_is_refused(app, given, told):
    with pytest.raises(BadInput, match=told):
        app.wrap(given)
    assert app.program.wraps == []


def test_a_wrap_that_makes_nothing_is_named_by_each_job(app):
    app.wrap(yields_not)

    @app.task(retry=3)
    def run() -> None: ...

    with inline(app), pytest.raises(JobFailed, match="wrap 'yields_not' neither yields nor returns") as failed:
        run.submit().result()
    assert failed.value.attempt == 1


def test_what_a_wrap_is_called_with_is_the_context(app):
    def takes_none():
        yield

    with pytest.raises(BadInput, match=r"wrap 'takes_none' is called with the context, but its signature is \(\)"):
        app.wrap(takes_none)


class Closed:
    def __init__(self, said: list[str]) -> None:
        self._said = said

    def close(self) -> None:
        self._said.append("closed")


def test_a_wrap_may_be_a_context_manager_already(app):
    said = []

    @app.wrap
    @contextlib.contextmanager
    def around(ctx: Context):
        said.append("before")
        yield
        said.append("after")

    @app.wrap
    def returned(ctx: Context):
        return contextlib.closing(Closed(said))

    @app.wrap
    class Guard(contextlib.AbstractContextManager):
        def __init__(self, ctx: Context) -> None: ...

        def __exit__(self, *trouble: object) -> None:
            said.append("left")

    @app.task
    async def run() -> None:
        said.append("run")

    with inline(app):
        run.submit().result()
    assert said == ["before", "run", "left", "closed", "after"]


def test_a_lifespan_that_does_not_yield_is_refused(app):
    async def begins() -> dict:
        return {"a": 1}

    with pytest.raises(BadInput, match="lifespan 'begins' neither yields nor returns a context manager"):
        app.lifespan(begins)
    with pytest.raises(BadInput, match="lifespan 'yields_async' is called with nothing, but its signature is"):
        app.lifespan(yields_async)


def test_a_setup_takes_nothing_or_what_is_shared(app):
    with pytest.raises(BadInput, match=r"3 is not a function: write @app\.setup above a def"):
        app.setup(3)
    with pytest.raises(BadInput, match="setup 'add' is called with nothing, or `shared`"):
        app.setup(add)
    app.setup(lambda: None)
    app.setup(lambda shared: None)


# -- workers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"processes": "2"}, "processes='2': write a whole number"),
        ({"processes": 2.0}, "processes=2.0: write a whole number"),
        ({"async_jobs": True}, "async_jobs=True: write a whole number"),
        ({"recycle_after": "10"}, "recycle_after='10': write a whole number"),
        ({"memory_limit": "512MiB"}, "memory_limit='512MiB': write a whole number of bytes"),
        ({"isolation": "none"}, "isolation='none': write 'process' or 'thread'"),
        ({"until_idle": "yes"}, "until_idle='yes': write True or False"),
        ({"queues": 3}, "queues=3: write a list of names"),
        ({"name": 3}, "name=3: write a string"),
    ],
)
def test_a_worker_s_setting_that_cannot_be_right_is_refused_with_the_right_spelling(app, said, told):
    with pytest.raises(BadInput, match="write") as refused:
        app.work(**said)
    assert told in str(refused.value)


# -- durations ---------------------------------------------------------------------------------------------------------


def test_a_task_may_say_as_text_when_to_come_back(app):
    @app.task(retry=Retry(attempts=2, delay="10ms", strategy="fixed"))
    def busy(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise Transient("busy", retry_after="3s")
        return ctx.attempt

    @app.task
    def wrong() -> None:
        raise Transient("the printer is busy", retry_after=3)

    with inline(app) as run:
        began = run.clock.now
        assert busy.submit().result() == 2
        assert (run.clock.now - began).total_seconds() == 3
        with pytest.raises(JobFailed, match=r"'the printer is busy'.*write '90s'"):
            wrong.submit().result()

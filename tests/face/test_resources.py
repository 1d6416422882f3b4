"""Resources in the Python face: declared in code, changed by people, kept by workers."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta

import msgspec
import pytest

from daybreak import BadInput, Breaker, Daybreak, LockTimeout, QueueFull, Resource, Retry, State, Transient
from daybreak.api.locks import lock_job
from daybreak.client.leases import lease_of
from daybreak.core.model import Gate, Need, Put

SECONDS = 20


@pytest.fixture(params=["memory", "sqlite"])
def app(request, tmp_path):
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    with Daybreak(url, by="ann") as app:
        yield app


class Most:
    """How many were inside at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = self.seen = 0

    def __enter__(self) -> None:
        with self._lock:
            self._now += 1
            self.seen = max(self.seen, self._now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._now -= 1


def test_no_more_jobs_run_than_there_are_slots(app):
    most = Most()

    @app.task(resource=Resource("plecs", slots=2))
    def simulate(n: int) -> int:
        with most:
            time.sleep(0.02)
        return n

    jobs = simulate.submit_many([{"n": n} for n in range(12)])
    with app.worker(processes=6, isolation="thread"):
        assert [job.result(timeout="20s") for job in jobs] == list(range(12))
    assert most.seen == 2
    assert app.resource("plecs").info().used == 0


def test_a_resource_follows_from_the_arguments(app):
    @app.task(resource=lambda model, **_: Resource(f"licence:{model}", slots=1))
    def simulate(model: str, n: int = 0) -> str:
        return model

    job = simulate.submit("buck")
    spec = app.portal.run(client_of(app)).get
    found = app.portal.run(spec(job.id))
    assert found.spec.options.resources == (Need("licence:buck"),)
    assert app.resource("licence:buck").settings().slots == 1
    many = simulate.submit_many([{"model": "boost", "n": 1}, {"model": "buck"}])
    needs = [app.portal.run(spec(one.id)).spec.options.resources for one in many]
    assert needs == [(Need("licence:boost"),), (Need("licence:buck"),)]


def client_of(app: Daybreak):
    return app.client()


def test_using_says_otherwise(app):
    plecs = Resource("plecs", slots=3)

    @app.task(resource=plecs)
    def simulate() -> None: ...

    get = app.portal.run(client_of(app)).get
    big = simulate.using(resource=plecs.take(2)).submit()
    none = simulate.using(resource=[]).submit()
    assert app.portal.run(get(big.id)).spec.options.resources == (Need("plecs", 2),)
    assert app.portal.run(get(none.id)).spec.options.resources == ()
    with pytest.raises(BadInput, match="resource="):
        simulate.using(resource=3).submit()


def test_a_wrong_resource_is_said_where_the_task_is_defined(app):
    with pytest.raises(BadInput, match="resource="):

        @app.task(resource=5)
        def simulate() -> None: ...


def test_what_the_code_declares_holds_until_a_person_says_otherwise(app):
    @app.task(resource=Resource("plecs", slots=2))
    def simulate() -> None: ...

    simulate.submit()
    plecs = app.resource("plecs")
    assert plecs.settings().slots == 2
    assert plecs.set(slots=5, rate="10/s", burst=2).slots == 5
    info = plecs.info()
    assert (info.slots, info.rate, info.burst, info.set_by, info.differs) == (5, "10/s", 2, "ann", True)

    other = Daybreak(app.settings.url, by="bob") if app.settings.url.startswith("sqlite") else None
    if other is not None:  # the same code, started anew, and new code that says otherwise
        with other:

            @other.task(resource=Resource("plecs", slots=3))
            def simulate_more() -> None: ...

            simulate_more.submit()
            assert other.resource("plecs").settings().slots == 5
            assert other.resource("plecs").reset().slots == 3
    else:
        assert plecs.reset().slots == 2
    info = plecs.info()
    assert (info.rate, info.set_by, info.differs) == ("none", "", False)


def test_new_code_changes_what_old_code_declared(app):
    for slots in (1, 4):
        app._sessions.provided.clear()

        @app.task(name=f"simulate{slots}", resource=Resource("plecs", slots=slots))
        def simulate() -> None: ...

        simulate.submit()
        assert app.resource("plecs").settings().slots == slots


def test_a_name_alone_does_not_keep_the_declaration_out(app):
    @app.task(resource="plecs")
    def first() -> None: ...

    @app.task(resource=Resource("plecs", slots=2))
    def second() -> None: ...

    first.submit()
    second.submit()
    assert app.resource("plecs").settings().slots == 2


def test_a_declaration_that_was_said_by_halves_is_made_whole(app):
    """Killed in the midst of it, an earlier program may have left only what the code says, and no limit."""

    @app.task(resource=Resource("plecs", slots=2))
    def simulate() -> None: ...

    simulate.submit()

    async def lose() -> None:
        await (await app.client()).store.put([Put(kind="resource", name="plecs", value=None)])

    app.portal.run(lose())
    assert app.resource("plecs").settings().slots is None
    app._sessions.provided.clear()
    simulate.submit()
    assert app.resource("plecs").settings().slots == 2


def test_a_breaker_that_is_switched_off_limits_nothing_any_more(app):
    server = app.resource("server")
    server.set(slots=10, breaker=Breaker(open_for="1h"))

    async def shut() -> None:
        gate = Gate(state="open", shut_for=timedelta(hours=1), probes=1)
        await (await app.client()).store.put([Put(kind="gate", name="server", value=msgspec.json.encode(gate))])

    app.portal.run(shut())
    assert server.info().shut_until is not None
    server.set(breaker=False)
    assert server.info().shut_until is None
    with server.slot(5, wait="5s"):
        pass


def test_a_rate_that_is_taken_away_takes_its_burst_along(app):
    api = app.resource("api")
    api.set(rate="1/s", burst=5)
    assert (api.set(rate="none").every, api.settings().burst) == (None, 1)


def test_too_many_waiting_is_a_clear_refusal(app):
    @app.task(resource=Resource("plecs", slots=0, max_waiting=1))
    def simulate() -> None: ...

    simulate.submit()
    with app.worker(processes=1, isolation="thread"):
        until(lambda: app.resource("plecs").info().waiting == 1)
        with pytest.raises(QueueFull):
            simulate.submit()


def until(condition) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.01)


def test_a_changed_limit_is_felt_by_a_running_worker(app):
    @app.task(resource=Resource("plecs", slots=0))
    def simulate() -> int:
        return 7

    job = simulate.submit()
    with app.worker(processes=1, isolation="thread"):
        until(lambda: job.state() is State.BLOCKED)
        app.resource("plecs").set(slots=1)
        assert job.result(timeout="20s") == 7


def test_a_breaker_step_by_step(app):
    """Five failures open it, jobs wait uncharged, one probe at a time, two successes close it."""
    is_well = threading.Event()
    tried: list[float] = []

    @app.task(resource=Resource("server", breaker=Breaker(failures=3, successes=2, open_for="0.5s")), retry=50)
    async def ask(n: int) -> int:
        tried.append(time.monotonic())
        if not is_well.is_set():
            raise Transient("down", retry_after="0.01s")
        return n

    jobs = ask.submit_many([{"n": n} for n in range(3)])
    server = app.resource("server")
    with app.worker(async_jobs=3, isolation="thread"):
        until(lambda: server.info().opened >= 1)
        opened_at = time.monotonic()
        late = ask.submit(9)
        until(lambda: late.state() is State.BLOCKED)
        assert late.info().attempt == 0
        until(lambda: server.info().opened >= 2)
        assert len([at for at in tried if at > opened_at]) == 1, "one probe, and it failed"
        is_well.set()
        assert [job.result(timeout="20s") for job in [*jobs, late]] == [0, 1, 2, 9]
    info = server.info()
    assert (info.breaker, info.failures, info.waiting, info.used) == ("closed", 0, 0, 0)
    feed = app.portal.run(app.portal.run(client_of(app)).store.events())
    told = [event.kind for event in feed.events if event.kind.startswith("breaker_")]
    assert told == ["breaker_opened", "breaker_probing"] * info.opened + ["breaker_closed"]


def test_the_async_face_does_the_same(app):
    @app.task(resource=Resource("plecs", slots=1))
    async def simulate(n: int) -> int:
        return n

    async def main() -> None:
        job = await simulate.asubmit(3)
        [info] = await app.aresources()
        assert (info.name, info.slots) == ("plecs", 1)
        async with app.aworker(async_jobs=1, isolation="thread"):
            assert await job.aresult("20s") == 3
        assert (await app.resource("plecs").aset(slots=2)).slots == 2
        assert (await app.resource("plecs").areset()).slots == 1

    asyncio.run(main())


# -- for plain code ----------------------------------------------------------------------------------------------------


def test_a_slot_around_plain_code_counts_as_a_jobs_does(app):
    app.resource("plecs").set(slots=2)
    plecs = app.resource("plecs")
    with plecs.slot():
        assert plecs.info().used == 1
        with plecs.slot(wait="5s"):
            assert plecs.info().used == 2
            with pytest.raises(LockTimeout):
                plecs.slot(wait="50ms").acquire()
    assert plecs.info().used == 0
    with plecs.slot(2), pytest.raises(LockTimeout):
        plecs.slot(wait="50ms").acquire()
    with pytest.raises(BadInput, match="slots"):
        plecs.slot(0)


def test_a_job_waits_for_a_slot_of_plain_code(app):
    @app.task(resource=Resource("plecs", slots=1))
    def simulate() -> int:
        return 7

    job = simulate.submit()
    with app.resource("plecs").slot(), app.worker(processes=1, isolation="thread"):
        until(lambda: job.state() is State.BLOCKED)
    with app.worker(processes=1, isolation="thread"):
        assert job.result(timeout="20s") == 7


def test_allow_uses_a_start_where_there_is_one(app):
    app.resource("api").set(rate="2/h", burst=2)
    api = app.resource("api")
    assert [api.allow() for _ in range(3)] == [True, True, False]
    assert (api.info().used, api.info().waiting) == (0, 0)

    async def main() -> bool:
        return await api.aallow()

    assert asyncio.run(main()) is False


def test_retrying_tries_again_as_jobs_do(app):
    tries: list[str] = []
    quick = Retry(strategy="fixed", attempts=3, delay=timedelta(milliseconds=1))

    @app.retrying(quick)
    def fetch(name: str) -> str:
        """Fetches."""
        tries.append(name)
        if len(tries) < 3:
            raise ConnectionError("not yet")
        return name

    assert fetch("x") == "x"
    assert (tries, fetch.__doc__) == (["x"] * 3, "Fetches.")

    @app.retrying(quick)
    async def wrong() -> None:
        tries.append("wrong")
        raise ValueError("never")

    with pytest.raises(ValueError, match="never"):
        asyncio.run(wrong())
    assert tries.count("wrong") == 1

    @app.retrying(quick, resource="api")
    def never() -> None:
        tries.append(f"{app.resource('api').info().used} in use")
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        never()
    assert tries.count("1 in use") == 3
    with pytest.raises(BadInput, match="retry"):
        app.retrying("often")


def test_work_goes_on_until_those_that_wait_for_an_open_breaker_have_ended(app):
    calls: list[int] = []

    @app.task(resource=Resource("server", breaker=Breaker(failures=1, successes=1, open_for="1s")))
    def ask(n: int) -> int:
        calls.append(n)
        if len(calls) == 1:
            raise Transient("down", retry_after="10ms")
        return n

    jobs = ask.submit_many([{"n": n} for n in range(3)])
    app.work(processes=1)
    assert [job.info().state for job in jobs] == [State.COMPLETED] * 3


def test_plain_code_tells_a_breaker_how_it_went(app):
    app.resource("server").set(breaker=Breaker(failures=2, open_for="500ms", successes=1))
    calls: list[float] = []

    @app.retrying(Retry(strategy="fixed", attempts=4, delay=timedelta(milliseconds=1)), resource="server")
    def ask() -> str:
        calls.append(time.monotonic())
        if len(calls) < 3:
            raise Transient("down")
        return "fine"

    assert ask() == "fine"
    assert calls[2] - calls[1] >= 0.5
    info = app.resource("server").info()
    assert (info.breaker, info.opened) == ("closed", 1)


def test_what_succeeded_is_not_done_again_because_its_slot_was_lost(app, caplog):
    app.resource("server").set(slots=1)
    calls: list[int] = []

    @app.retrying(3, resource="server")
    def pay() -> str:
        calls.append(1)
        [holder] = app.locks()
        app.job(holder.job).cancel()
        release(app, "server")
        return "paid"

    assert pay() == "paid"
    assert calls == [1]
    assert "a slot of resource server" in caplog.text


def release(app, resource):
    """As a person would, by force."""

    async def take_away(client):
        for job in await lock_job.holders(client):
            await lock_job.give_back(client, lease_of(job), forced_by="eve")

    app.portal.run(app._with_client(take_away))

"""The example of code execution: every snippet of the Integr8sCode document, replayed through the layer that carries
its names; its routes, and its score."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import timedelta

import executions
import pytest
import redis_servers
from execution_queue import events, policies
from execution_queue.broker import OutputIntake, Publisher
from execution_queue.events import ExecutionRequested
from execution_queue.metrics import QueueMetrics
from execution_queue.service import EXECUTIONS, ExecutionQueueService, QuotaExceeded
from execution_queue.settings import RuntimeSettingsLoader, SystemSettings

from daybreak import BadInput, State
from daybreak.core.units import moment
from daybreak.feeds.bridge.channels.channel import ChannelError, MessageTooLarge
from daybreak.server import asgi
from daybreak.server.access.tokens import create_token

LEVELS = ("CRITICAL", "HIGH", "NORMAL", "LOW", "BACKGROUND")


@pytest.fixture
async def app(tmp_path):
    executions.app.use(f"sqlite:///{tmp_path}/executions.db")
    yield executions.app
    await executions.app.aclose()


@pytest.fixture
def queue(app):
    return ExecutionQueueService(app)


def request(name: str, priority: str = "NORMAL", **fields) -> ExecutionRequested:
    return ExecutionRequested(**{"execution_id": name, "script": "print(1)", "priority": priority, **fields})


async def scheduled(queue, cap: int = 10) -> list[str]:
    """What the loop of the document schedules: until `try_schedule` returns None."""
    found = []
    while (one := await queue.try_schedule(cap)) is not None:
        found.append(one[0])
    return found


# -- the score ---------------------------------------------------------------------------------------------------------

SCORE_OF_THE_DOCUMENT = {"CRITICAL": 0, "HIGH": 1, "NORMAL": 2, "LOW": 3, "BACKGROUND": 4}


async def test_the_ranges_of_the_score_count_every_priority_one_band_too_high_and_ours_are_right(queue):
    """The document: score = band * 10^12 + unix_ms, and counts by ZCOUNT on band * 10^12 .. (band + 1) * 10^12 - 1.
    But unix_ms has been above 10^12 since September 2001, so each score lies in the range of the next band."""
    redis_servers.need_redis()
    expected = {"CRITICAL": 1, "HIGH": 2, "NORMAL": 3, "LOW": 4, "BACKGROUND": 5}
    with redis_servers.fresh() as namespace, redis_servers.connect() as redis:
        pending = f"{{{namespace}}}:exec_queue:pending"
        for level, n in expected.items():
            for number in range(n):
                score = SCORE_OF_THE_DOCUMENT[level] * 10**12 + int(time.time() * 1000)
                redis.call(("ZADD", pending, score, f"{level} {number}"))
                await queue.enqueue(request(f"{level}-{number}", level))
        counted = {
            level: redis.call(("ZCOUNT", pending, band * 10**12, (band + 1) * 10**12 - 1))
            for level, band in SCORE_OF_THE_DOCUMENT.items()
        }
        order = [redis.call(("ZPOPMIN", pending))[0].decode().split()[0] for _ in range(15)]
    assert counted == {"CRITICAL": 0, "HIGH": 1, "NORMAL": 2, "LOW": 3, "BACKGROUND": 4}
    assert sum(counted.values()) == sum(expected.values()) - 5  # those of BACKGROUND are counted nowhere
    assert await queue.get_pending_by_priority() == expected
    # The order of the score is right, and it is ours.
    assert [one.split("-")[0] for one in await scheduled(queue, 100)] == order


# -- ExecutionQueueService ---------------------------------------------------------------------------------------------


async def test_enqueue_returns_the_position_over_all_priorities(queue):
    assert await queue.enqueue(request("a")) == 0
    assert await queue.enqueue(request("b")) == 1
    assert await queue.enqueue(request("c", "CRITICAL")) == 0
    assert await queue.enqueue(request("d", "LOW")) == 3
    assert await scheduled(queue) == ["c", "a", "b", "d"]


async def test_an_event_that_comes_twice_is_one_execution_also_after_its_end(queue):
    for _ in range(2):
        await queue.enqueue(request("a"))
    assert (await queue.get_queue_status()).queue_depth == 1
    assert await scheduled(queue) == ["a"]
    assert await queue.release("a", {"status": "completed"})
    await queue.enqueue(request("a"))
    assert await scheduled(queue) == []
    status = await queue.get_queue_status()
    assert (status.queue_depth, status.active_count) == (0, 0)


async def test_try_schedule_returns_the_event_as_it_was_and_none_for_an_empty_queue(queue):
    assert await queue.try_schedule(10) is None
    event = request("a", "HIGH", user_id="ann", language="bash", timeout_seconds=3.0)
    await queue.enqueue(event)
    assert await queue.try_schedule(10) == ("a", event)


async def test_the_cap_holds_for_callers_at_the_same_time(queue):
    for n in range(12):
        await queue.enqueue(request(f"e{n}"))
    found = await asyncio.gather(*(queue.try_schedule(5) for _ in range(60)))
    assert len([one for one in found if one is not None]) == 5
    assert (await queue.get_queue_status()).active_count == 5


async def test_release_frees_the_slot_once(queue):
    for name in ("a", "b"):
        await queue.enqueue(request(name))
    assert await scheduled(queue, 1) == ["a"]
    assert await queue.release("a")
    assert not await queue.release("a")
    assert not await queue.release("unknown")
    assert await scheduled(queue, 1) == ["b"]
    assert not await queue.release("c")


async def test_update_priority_keeps_the_time_of_arrival_and_refuses_what_is_not_pending(queue):
    for name in ("a", "b", "c"):
        await queue.enqueue(request(name))
    await queue.enqueue(request("d", "HIGH"))
    assert await queue.update_priority("c", "HIGH")  # before d, because it came before d
    assert await queue.update_priority("a", "BACKGROUND")
    assert not await queue.update_priority("unknown", "HIGH")
    with pytest.raises(BadInput, match="CRITICAL, HIGH, NORMAL, LOW, BACKGROUND"):
        await queue.update_priority("b", "URGENT")
    assert await scheduled(queue) == ["c", "d", "b", "a"]
    assert not await queue.update_priority("c", "LOW")


async def test_remove_ends_a_pending_and_an_active_execution(queue, app):
    for name in ("a", "b"):
        await queue.enqueue(request(name))
    assert await scheduled(queue, 1) == ["a"]
    assert await queue.remove("b", "not needed")
    assert await queue.remove("a", "takes too long")
    assert not await queue.remove("a")
    assert not await queue.remove("unknown")
    status = await queue.get_queue_status()
    assert (status.queue_depth, status.active_count) == (0, 0)
    found = {info.key: (info.state, info.note) async for info in app.afind(queue=EXECUTIONS)}
    assert found == {"a": (State.CANCELLED, "takes too long"), "b": (State.CANCELLED, "not needed")}
    assert not await queue.release("a")


async def test_status_and_counts_by_priority_leave_out_zeros(queue):
    for n, level in enumerate(("HIGH", "LOW", "LOW", "BACKGROUND")):
        await queue.enqueue(request(f"e{n}", level))
    status = await queue.get_queue_status()
    assert (status.queue_depth, status.active_count) == (4, 0)
    assert status == {"queue_depth": 4, "active_count": 0}
    assert await queue.get_pending_by_priority() == {"HIGH": 1, "LOW": 2, "BACKGROUND": 1}
    await queue.try_schedule(10)
    assert await queue.get_pending_by_priority() == {"LOW": 2, "BACKGROUND": 1}
    status = await queue.get_queue_status()
    assert (status.queue_depth, status.active_count) == (3, 1)


async def test_an_execution_that_could_not_be_started_keeps_its_place_and_its_priority(queue):
    for name in ("a", "b"):
        await queue.enqueue(request(name))
    assert await scheduled(queue, 1) == ["a"]
    assert await queue.increment_retry_count("a") == 1
    assert await scheduled(queue, 1) == ["a"]


async def test_a_user_has_a_quota_also_when_requests_come_together(app):
    queue = ExecutionQueueService(app, user_limit=3)
    calls = [queue.enqueue(request(f"e{n}", user_id="ann")) for n in range(6)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in answers].count(int) == 3
    assert [type(one) for one in answers].count(QuotaExceeded) == 3
    await queue.enqueue(request("other", user_id="bob"))
    accepted = next(f"e{n}" for n, one in enumerate(answers) if isinstance(one, int))
    assert isinstance(await queue.enqueue(request(accepted, user_id="ann")), int)  # the same again is no new one
    await queue.remove(accepted)
    await queue.enqueue(request("next", user_id="ann"))


# -- settings, schedule, policies --------------------------------------------------------------------------------------


async def test_the_cap_is_changed_while_executions_run_and_is_between_1_and_100(app, queue):
    settings = RuntimeSettingsLoader(app)
    assert await settings.load() == SystemSettings(max_concurrent_executions=10)
    await settings.save(SystemSettings(max_concurrent_executions=3))
    assert (await settings.load()).max_concurrent_executions == 3
    assert (await (await app.client()).queue(EXECUTIONS)).capacity == 10_000  # also if no worker has started yet
    import msgspec

    for wrong in (0, 101):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"max_concurrent_executions": wrong}, SystemSettings)


def test_the_periodic_fallback_is_every_ten_seconds_one_at_a_time_with_a_grace_of_thirty(app):
    declared = app.declared_schedules["saga_try_schedule"]
    assert declared.task.name == "try_schedule_from_queue"
    assert declared.timing.every == timedelta(seconds=10)
    assert (declared.overlap, declared.grace) == ("skip", timedelta(seconds=30))


def test_the_retry_policies_have_the_numbers_of_the_code():
    found = {
        name: (policy.attempts, policy.delay.total_seconds(), policy.cap.total_seconds(), policy.factor)
        for name in ("AGGRESSIVE", "CAUTIOUS", "DEFAULT")
        if (policy := getattr(policies, name))
    }
    assert found == {"AGGRESSIVE": (5, 30, 300, 2), "CAUTIOUS": (3, 60, 600, 3), "DEFAULT": (4, 60, 1800, 2.5)}
    assert policies.IMMEDIATE.attempts == policies.MAX_SAGA_START_RETRIES == 3


# -- events ------------------------------------------------------------------------------------------------------------


def test_the_events_have_the_names_of_the_document():
    names = ["ExecutionRequested", "ExecutionCompleted", "ExecutionFailed", "ExecutionTimeout", "ExecutionCancelled"]
    for name in (*names, "CreatePodCommandEvent"):
        assert getattr(events, name).__struct_config__.tag == name
    assert events.ExecutionRequestedEvent is events.ExecutionRequested


def test_a_message_that_is_no_event_of_this_system_is_refused_with_the_reason():
    for body in (b"", b"[]", b'{"event_type": "Other"}', b'{"event_type": "ExecutionRequested"}', b"\xff",
                 b'{"event_type": "ExecutionCancelled", "execution_id": "../../etc"}'):  # fmt: skip
        with pytest.raises(BadInput, match="no event of this system"):
            events.read_request(events.Message(body=body))
    body = b'{"event_type": "ExecutionRequested", "execution_id": "a", "script": "x", "priority": "URGENT"}'
    with pytest.raises(BadInput, match="CRITICAL, HIGH"):
        events.read_request(events.Message(body=body))


# -- the broker --------------------------------------------------------------------------------------------------------


class Broker:
    """A broker that is away for the first connections."""

    def __init__(self, away_for: int, error: type[ChannelError] = ChannelError) -> None:
        self.away_for, self.error = away_for, error
        self.connections = 0
        self.published = []

    def channel(self, *_):
        return self

    async def open(self):
        self.connections += 1
        if self.connections <= self.away_for:
            raise self.error("the broker is away")

    async def publish(self, topic, messages):
        self.published += [(topic, message.id) for message in messages]

    async def close(self):
        pass


async def test_a_step_of_the_saga_waits_for_a_broker_that_is_away(monkeypatch):
    broker = Broker(away_for=20)
    monkeypatch.setattr("execution_queue.broker.make_channel", broker.channel)
    monkeypatch.setattr("execution_queue.broker.RECONNECT_AFTER", 0)
    message = events.message_of(events.DeletePodCommandEvent(execution_id="e", saga_id="s"), "s.delete")
    await executions.publisher.publish(events.COMMANDS, message)
    await executions.publisher.close()
    assert (broker.connections, broker.published) == (21, [(events.COMMANDS, "s.delete")])
    broker.away_for = 40
    with pytest.raises(ChannelError):  # everybody else hears of it at once
        await Publisher("nats://localhost:1").publish(events.COMMANDS, message)
    assert broker.connections == 22


async def test_a_message_that_is_too_large_is_not_tried_again(monkeypatch):
    broker = Broker(away_for=20, error=MessageTooLarge)
    monkeypatch.setattr("execution_queue.broker.make_channel", broker.channel)
    message = events.message_of(events.DeletePodCommandEvent(execution_id="e", saga_id="s"), "s.delete")
    with pytest.raises(MessageTooLarge):
        await Publisher("nats://localhost:1", patience=3600).publish(events.COMMANDS, message)
    assert broker.connections == 1


# -- metrics -----------------------------------------------------------------------------------------------------------


async def test_the_five_instruments_agree_with_the_store_whatever_happened(app, queue):
    await app.queue("other").aadd({"not": "counted"})
    for n, level in enumerate(("CRITICAL", "NORMAL", "NORMAL", "LOW")):
        await queue.enqueue(request(f"e{n}", level))
    assert await scheduled(queue, 2) == ["e0", "e1"]
    await queue.remove("e3")

    async def lines() -> set[str]:
        return set((await QueueMetrics(app).text()).decode().splitlines())

    assert {
        "queue_depth 1.0", "queue_active 2.0", "queue_enqueue_total 4.0", "queue_schedule_total 2.0",
        'queue_wait_time_count{priority="critical"} 1.0', 'queue_wait_time_bucket{le="+Inf",priority="normal"} 1.0',
        "# TYPE queue_wait_time histogram", "queue_event_data_lost_total 0.0",
    } <= await lines()  # fmt: skip
    await queue.release("e0", {"status": "completed"})
    await queue.remove("e1")
    assert {"queue_depth 1.0", "queue_active 0.0", "queue_schedule_total 2.0"} <= await lines()


# -- routes ------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def web(app):
    """The server, and clients of it: an administrator, two users, one who may only read, and one without a token."""
    import httpx
    from execution_queue.routes import admin_routes, routes

    client = await app.client()
    clients = {}
    transport = httpx.ASGITransport(asgi(app, routes=[routes, admin_routes]))
    for name, role in (("root", "admin"), ("ann", "submit"), ("bob", "submit"), ("eve", "read"), ("nobody", None)):
        headers = {}
        if role is not None:
            _, token = await create_token(client.store, name, [role], now=moment(client.wall()))
            headers = {"Authorization": f"Bearer {token}"}
        clients[name] = httpx.AsyncClient(transport=transport, base_url="http://server", headers=headers)
    yield clients
    for one in clients.values():
        await one.aclose()


async def submitted(http, **body) -> str:
    answer = await http.post("/api/v1/execute", json={"script": "print(1)", **body})
    assert answer.status_code == 201, answer.text
    return answer.json()["execution_id"]


async def test_an_execution_is_submitted_once_per_idempotency_key(web):
    headers = {"Idempotency-Key": "k1"}
    answers = [await web["ann"].post("/api/v1/execute", json={"script": "1"}, headers=headers) for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    assert answers[0].json()["status"] == "queued"
    assert (await web["root"].get("/api/v1/admin/executions/")).json()["total"] == 1


async def test_the_list_has_filters_and_pages(web, queue):
    for n in range(5):
        await submitted(web["ann"], priority=LEVELS[n])
    await submitted(web["bob"])
    root = web["root"]
    whole = (await root.get("/api/v1/admin/executions/")).json()
    assert (whole["total"], whole["limit"], whole["skip"], whole["has_more"]) == (6, 50, 0, False)
    assert whole["executions"][0]["user_id"] == "bob"  # the newest first
    page = (await root.get("/api/v1/admin/executions/", params={"limit": 2, "skip": 3})).json()
    assert (len(page["executions"]), page["total"], page["has_more"]) == (2, 6, True)
    assert page["executions"] == whole["executions"][3:5]
    end = (await root.get("/api/v1/admin/executions/", params={"limit": 2, "skip": 5})).json()
    assert (len(end["executions"]), end["has_more"]) == (1, False)
    for params, n in (
        ({"priority": "NORMAL"}, 2), ({"user_id": "bob"}, 1), ({"status": "queued"}, 6), ({"status": "running"}, 0),
        ({"user_id": "ann", "priority": "CRITICAL", "status": "queued"}, 1), ({"user_id": "nobody"}, 0),
    ):  # fmt: skip
        assert (await root.get("/api/v1/admin/executions/", params=params)).json()["total"] == n, params
    await queue.try_schedule(10)
    found = (await root.get("/api/v1/admin/executions/", params={"status": "running"})).json()
    assert [one["priority"] for one in found["executions"]] == ["CRITICAL"]
    assert (await root.get("/api/v1/admin/executions")).status_code == 200  # without the slash, too


async def test_the_queue_shows_depth_active_cap_and_priorities(web, queue):
    for level in ("LOW", "LOW", "HIGH"):
        await submitted(web["ann"], priority=level)
    await queue.try_schedule(10)
    shown = (await web["root"].get("/api/v1/admin/executions/queue")).json()
    assert shown == {"queue_depth": 2, "active_count": 1, "max_concurrent": 10, "by_priority": {"LOW": 2}}


async def test_an_administrator_changes_priority_and_cap(web, queue):
    low, other = await submitted(web["ann"], priority="LOW"), await submitted(web["ann"])
    answer = await web["root"].put(f"/api/v1/admin/executions/{low}/priority", json={"priority": "CRITICAL"})
    assert (answer.status_code, answer.json()["priority"]) == (200, "CRITICAL")
    answer = await web["root"].put("/api/v1/admin/settings", json={"max_concurrent_executions": 3})
    assert answer.json() == {"max_concurrent_executions": 3}
    assert (await web["root"].get("/api/v1/admin/executions/queue")).json()["max_concurrent"] == 3
    assert await scheduled(queue, 3) == [low, other]
    answer = await web["root"].put(f"/api/v1/admin/executions/{low}/priority", json={"priority": "LOW"})
    assert answer.status_code == 409


async def test_priorities_may_be_written_in_small_letters(web):
    name = await submitted(web["ann"], priority="low")
    answer = await web["root"].put(f"/api/v1/admin/executions/{name}/priority", json={"priority": "high"})
    assert (answer.status_code, answer.json()["priority"]) == (200, "HIGH")
    for word, n in {"high": 1, "HIGH": 1, "low": 0}.items():
        answer = await web["root"].get("/api/v1/admin/executions/", params={"priority": word})
        assert answer.json()["total"] == n
    assert (await web["root"].get("/api/v1/admin/executions/queue")).json()["by_priority"] == {"HIGH": 1}


async def test_who_may_do_what(web):
    name = await submitted(web["ann"])
    admin = [
        ("GET", "/api/v1/admin/executions/", None), ("GET", "/api/v1/admin/executions/queue", None),
        ("PUT", f"/api/v1/admin/executions/{name}/priority", {"priority": "HIGH"}),
        ("GET", "/api/v1/admin/settings", None), ("PUT", "/api/v1/admin/settings", {"max_concurrent_executions": 5}),
        ("GET", "/api/v1/admin/executions/metrics", None), ("DELETE", f"/api/v1/admin/executions/{name}", None),
    ]  # fmt: skip
    user = [
        ("GET", f"/api/v1/executions/{name}/result", None), ("GET", f"/api/v1/executions/{name}/events", None),
        ("GET", f"/api/v1/events/executions/{name}", None), ("POST", f"/api/v1/executions/{name}/retry", None),
        ("POST", f"/api/v1/executions/{name}/cancel", None),
    ]  # fmt: skip

    async def status(who: str, method: str, path: str, body: object) -> int:
        return (await web[who].request(method, path, **({"json": body} if body else {}))).status_code

    for call in [*admin, *user, ("POST", "/api/v1/execute", {"script": "1"}), ("GET", "/api/v1/user/executions", None)]:
        assert await status("nobody", *call) == 401, call
        assert await status("eve", *call) == 403, call
    for call in admin:
        assert await status("ann", *call) == 403, call
    for call in user:
        assert await status("bob", *call) == 404, call  # another user's execution does not exist for bob
    assert (await web["ann"].get("/api/v1/user/executions")).json()["total"] == 1
    assert (await web["bob"].get("/api/v1/user/executions")).json()["total"] == 0


async def test_what_is_unknown_is_404_and_what_is_wrong_is_422(web):
    root = web["root"]
    answer = await root.put("/api/v1/admin/executions/unknown/priority", json={"priority": "HIGH"})
    assert answer.status_code == 404
    name = await submitted(web["ann"])
    for body in ({"priority": "URGENT"}, {"priority": 1}, {}, {"priority": "HIGH", "more": 1}):
        answer = await root.put(f"/api/v1/admin/executions/{name}/priority", json=body)
        assert answer.status_code == 422, body
    for params in ({"limit": 0}, {"limit": 201}, {"skip": -1}, {"status": "lost"}, {"priority": "URGENT"}, {"x": 1}):
        assert (await root.get("/api/v1/admin/executions/", params=params)).status_code == 422, params
    for body in (
        {"max_concurrent_executions": 0}, {"max_concurrent_executions": 101}, {}, {"max_concurent_executions": 3},
        {"max_concurrent_executions": 3, "more": 1},
    ):  # fmt: skip
        assert (await root.put("/api/v1/admin/settings", json=body)).status_code == 422, body
    assert (await web["ann"].post("/api/v1/execute", json={"script": "1", "priority": "URGENT"})).status_code == 422
    assert (await web["ann"].get("/api/v1/executions/unknown/result")).status_code == 404


async def test_cancel_keeps_the_reason_and_says_what_it_did(web, queue):
    name = await submitted(web["ann"])
    answer = await web["ann"].post(f"/api/v1/executions/{name}/cancel", json={"reason": "a typo"})
    assert answer.json() == {"execution_id": name, "status": "cancellation_requested"}
    assert (await web["ann"].post(f"/api/v1/executions/{name}/cancel")).json()["status"] == "already_cancelled"
    history = (await web["ann"].get(f"/api/v1/executions/{name}/events")).json()
    assert [(one["event_type"], one["by"], one["note"]) for one in history] == [
        ("submitted", "ann", ""), ("cancelled", "ann", "a typo"),
    ]  # fmt: skip
    shown = (await web["ann"].get(f"/api/v1/executions/{name}/result")).json()
    assert (shown["status"], shown["error"]) == ("cancelled", "a typo")
    other = await submitted(web["ann"])
    await queue.try_schedule(10)
    await queue.release(other, {"status": "completed", "exit_code": 0, "stdout": "1\n"})
    assert (await web["ann"].post(f"/api/v1/executions/{other}/cancel")).status_code == 409
    shown = (await web["ann"].get(f"/api/v1/executions/{other}/result")).json()
    assert (shown["status"], shown["exit_code"], shown["stdout"]) == ("completed", 0, "1\n")


async def test_an_execution_that_has_ended_is_retried_under_its_id(web, queue):
    name = await submitted(web["ann"])
    assert (await web["ann"].post(f"/api/v1/executions/{name}/retry")).status_code == 409
    await web["ann"].post(f"/api/v1/executions/{name}/cancel")
    answer = await web["ann"].post(f"/api/v1/executions/{name}/retry", json={"reason": "I need it"})
    assert (answer.status_code, answer.json()["status"]) == (200, "queued")
    assert (await queue.try_schedule(10))[0] == name


async def test_the_live_stream_shows_status_output_and_result_and_goes_on_where_it_was(app, web, queue):
    name = await submitted(web["ann"])
    await queue.try_schedule(10)
    intake = OutputIntake(app, "nats://nowhere:4222")
    for start, text in ((0, "one\n"), (4, "zwölf\n"), (0, "one\n")):  # the first part comes twice
        part = events.PodOutput(execution_id=name, execution_job=name, run=101, start=start, stream="stdout", text=text)
        message = events.Message(body=events.message_of(part, "m").body)
        await intake.keep((await app.client()).store, [message, events.Message(body=b"no event")])
    await queue.release(name, {"status": "completed", "exit_code": 0, "stdout": "one\nzwölf\n"})

    async def follow(**headers) -> list[tuple[str, str, object]]:
        answer = await web["ann"].get(f"/api/v1/events/executions/{name}", headers=headers)
        assert answer.headers["content-type"].startswith("text/event-stream")
        found = []
        for block in answer.text.strip().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines())
            found.append((fields.get("event", ""), fields.get("id", ""), json.loads(fields.get("data", "null"))))
        return found

    whole = await follow()
    assert (whole[0][0], whole[0][2]["status"]) == ("status", "completed")
    output = "".join(data["text"] for kind, _, data in whole if kind == "output")
    assert output == "one\nzwölf\n"
    assert (whole[-1][0], whole[-1][2]["exit_code"]) == ("result", 0)
    again = await follow(**{"Last-Event-ID": whole[-1][1]})
    assert [kind for kind, _, _ in again] == ["status", "result"]
    answer = await web["ann"].get(f"/api/v1/events/executions/{name}", headers={"Last-Event-ID": "nonsense"})
    assert answer.status_code == 422


async def test_an_execution_is_deleted(web, queue):
    pending, active = await submitted(web["ann"]), await submitted(web["ann"])
    await queue.update_priority(active, "HIGH")
    await queue.try_schedule(10)
    assert (await web["ann"].delete(f"/api/v1/executions/{pending}")).status_code == 403
    assert (await web["root"].delete(f"/api/v1/executions/{pending}")).status_code == 204
    assert (await web["root"].delete(f"/api/v1/admin/executions/{active}")).status_code == 204
    assert (await web["root"].get("/api/v1/admin/executions/")).json()["total"] == 0
    assert (await web["root"].delete(f"/api/v1/admin/executions/{active}")).status_code == 404


async def test_the_metrics_are_served_for_prometheus(web):
    await submitted(web["ann"])
    text = (await web["root"].get("/api/v1/admin/executions/metrics")).text
    assert "queue_depth 1.0" in text.splitlines()

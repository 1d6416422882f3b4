"""What holds for every route: a policy, problem documents, headers, health, and mounting in another application."""

from __future__ import annotations

import json

import httpx
import msgspec
import pytest
from fastapi import FastAPI
from litestar import Litestar
from msgspec.structs import replace
from server_world import LOCAL, problem

from daybreak.core.errors import StoreTooNew, StoreUnavailable
from daybreak.server import application, asgi
from daybreak.server.bodies.examples import EXAMPLES
from daybreak.server.problems import KINDS
from daybreak.server.routing import Policy, Route, Routes, may
from daybreak.server.settings import ServerSettings


def test_every_route_says_who_may_call_it(app):
    server = application.Server(app, ServerSettings(), application.all_routes())
    litestar = application.litestar_of(server)
    seen = 0
    for handlers in (route.route_handlers for route in litestar.routes):
        for handler in handlers:
            if handler.http_methods == {"OPTIONS"}:  # Litestar's own: it tells the methods and nothing else
                continue
            assert isinstance(handler.opt.get("route"), Route), handler.paths
            assert isinstance(handler.opt["route"].policy, Policy)
            seen += 1
    assert seen == len(application.all_routes()) > 0


def test_a_route_without_a_policy_is_refused_at_the_start(app):
    [route, *_] = application.all_routes()
    without = Route(**{**vars(route), "policy": None})
    with pytest.raises(TypeError, match="has no policy"):
        application.litestar_of(application.Server(app, ServerSettings(), [without]))


def test_no_page_of_documentation_is_served_by_the_framework(app):
    litestar = application.litestar_of(application.Server(app, ServerSettings(), application.all_routes()))
    assert isinstance(litestar, Litestar)
    assert not [route.path for route in litestar.routes if "schema" in route.path]


async def test_routes_of_an_application_s_own_follow_the_same_rules(app, make_token):
    own = Routes("own", prefix="/own")

    @own.get("/waiting", may("read"), answer=dict[str, int], summary="How many wait")
    async def show_waiting(call):
        call.check_queue("mail")
        return {"waiting": (await call.server.app.astats("mail")).queue.waiting}

    transport = httpx.ASGITransport(asgi(app, replace(LOCAL, anonymous_reads=False), routes=[own]))
    tokens = {name: await make_token(name, "read", queues=queues) for name, queues in (("ann", None), ("bob", ["x"]))}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        ann, bob = ({"authorization": f"Bearer {token}"} for token in tokens.values())
        assert (await client.get("/own/waiting", headers=ann)).json() == {"waiting": 0}
        problem(await client.get("/own/waiting"), 401, "unauthenticated")
        problem(await client.get("/own/waiting", headers=bob), 403, "forbidden")
        problem(await client.get("/own/waiting?x=1", headers=ann), 422, "invalid")
        problem(await client.post("/own/waiting", headers=ann), 405, "method-not-allowed")
        assert "/own/waiting" in (await client.get("/api/v1/openapi.json")).json()["paths"]
        assert (await client.get("/api/v1/queues", headers=ann)).status_code == 200


async def test_what_is_not_there_is_a_problem_document(connect):
    client = await connect()
    problem(await client.get("/nope"), 404, "not-found")
    problem(await client.get("/api/v1/jobs/nope"), 404, "not-found")
    wrong = await client.put("/health/live")
    problem(wrong, 405, "method-not-allowed")
    assert "GET" in wrong.headers["allow"]


async def test_every_answer_forbids_to_guess_frame_or_keep_it(connect):
    client = await connect()
    for path in ("/health/live", "/nope"):
        headers = (await client.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["x-frame-options"] == "DENY"


def test_every_kind_of_problem_has_a_name_of_its_own():
    assert len({kind.name for kind in KINDS}) == len(KINDS)


async def test_an_unexpected_error_tells_the_caller_nothing_of_itself(app, connect, monkeypatch, caplog):
    async def broken(*_):
        raise RuntimeError("the password is hunter2")

    client = await connect()
    monkeypatch.setattr((await app.client()).store, "get", broken)
    answer = await client.get("/api/v1/jobs/x")
    problem(answer, 500, "internal")
    assert "hunter2" not in answer.text
    assert "hunter2" in caplog.text


# -- health ------------------------------------------------------------------------------------------------------------


async def test_ready_gives_the_reason_of_each_check(app, connect):
    client = await connect(settings=ServerSettings())
    answer = (await client.get("/health/ready")).json()
    assert answer["status"] == "pass"
    assert {check["name"] for check in answer["checks"]} == {"store", "schema", "workers", "oldest waiting job"}
    assert all(check["reason"] for check in answer["checks"])
    await (await app.client()).submit("mail")
    answer = await client.get("/health/ready")
    assert answer.status_code == 200
    assert answer.json()["status"] == "warn"
    told = {check["name"]: check["reason"] for check in answer.json()["checks"]}
    assert told["workers"] == "no live worker, and 1 job waits"


@pytest.mark.parametrize(
    ("error", "check"), [(StoreUnavailable("secret-host is away"), "store"), (StoreTooNew("newer"), "schema")]
)
async def test_ready_is_503_while_the_store_cannot_be_used_and_live_is_not(app, connect, monkeypatch, error, check):
    async def broken(*_):
        raise error

    client = await connect()
    monkeypatch.setattr((await app.client()).store, "records", broken)
    answer = await client.get("/health/ready")
    assert answer.status_code == 503
    assert "secret-host" not in answer.text
    assert [one["name"] for one in answer.json()["checks"] if one["status"] == "fail"] == [check]
    assert (await client.get("/health/live")).status_code == 200


async def test_a_store_that_is_away_is_503_with_a_time_to_come_back(app, connect, monkeypatch):
    async def broken(*_):
        raise StoreUnavailable("away")

    client = await connect()
    monkeypatch.setattr((await app.client()).store, "get", broken)
    answer = await client.get("/api/v1/jobs/x")
    problem(answer, 503, "store-unavailable")
    assert int(answer.headers["retry-after"]) >= 1


# -- mounted -----------------------------------------------------------------------------------------------------------


async def test_it_is_mounted_in_fastapi(app, make_token):
    outer = FastAPI()
    outer.mount("/daybreak", asgi(app))
    token = {"authorization": f"Bearer {await make_token()}"}
    job = await (await app.client()).submit("mail")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(outer), base_url="http://outer.test") as client:
        assert (await client.get("/daybreak/health/live")).status_code == 200
        assert (await client.get(f"/daybreak/api/v1/jobs/{job}", headers=token)).json()["id"] == job
        problem(await client.get(f"/daybreak/api/v1/jobs/{job}"), 401, "unauthenticated")
        problem(await client.get("/daybreak/nope"), 404, "not-found")
        made = await client.post("/daybreak/api/v1/jobs", json={"task": "mail"}, headers=token)
        assert (await client.get(made.headers["location"], headers=token)).json()["id"] == made.json()["id"]
        assert (await client.get("/openapi.json")).json()["info"]["title"] == "FastAPI"


# -- OpenAPI -----------------------------------------------------------------------------------------------------------


async def test_the_openapi_document_has_every_route_with_its_role(connect):
    document = (await (await connect(settings=ServerSettings())).get("/api/v1/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    for route in application.all_routes():
        if route.tag == "dashboard":
            assert route.path not in document["paths"], "pages are for people"
            continue
        operation = document["paths"][route.path][route.method.lower()]
        assert operation["x-daybreak-role"] == (route.policy.role or "public")
        assert operation["summary"]
        assert str(route.status) in operation["responses"]
        if route.policy.role is not None:
            assert {"401", "403", "429"} <= set(operation["responses"])


async def test_requests_allow_no_field_that_is_not_documented(connect):
    document = (await (await connect()).get("/api/v1/openapi.json")).json()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                name = content["schema"]["$ref"].rpartition("/")[2]
                assert document["components"]["schemas"][name]["additionalProperties"] is False, path


@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_every_example_fits_its_own_schema(kind):
    # Of answers, which may get more fields, what is shown must all be documented.
    assert set(EXAMPLES[kind]) <= {field.encode_name for field in msgspec.structs.fields(kind)}
    msgspec.json.decode(json.dumps(EXAMPLES[kind]).encode(), type=kind)


async def test_the_body_limit_is_a_problem_document(connect):
    client = await connect(settings=replace(ServerSettings(), max_body=100))
    problem(await client.post("/sign-in", data={"code": "x" * 2000}), 413, "too-large")

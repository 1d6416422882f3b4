"""Who may do what: tokens, sessions, hosts, origins, rates."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from msgspec.structs import replace
from server_world import LOCAL, problem

from daybreak.core.errors import BadInput
from daybreak.core.units import moment
from daybreak.server.access.sessions import create_code
from daybreak.server.access.tokens import find_token, list_tokens, parts_of, revoke_token
from daybreak.server.settings import ServerSettings

SESSION = "/api/v1/session"


async def test_a_token_names_its_caller(connect, make_token):
    client = await connect(await make_token("ann", "submit", queues=["mail"]))
    answer = (await client.get(SESSION)).json()
    assert answer == {"by": "ann", "kind": "token", "roles": ["read", "submit"], "queues": ["mail"], "csrf": None}


async def test_a_secret_is_stored_nowhere(app, make_token):
    _, secret = parts_of(await make_token())
    store = (await app.client()).store
    [record] = await store.records("token")
    assert secret.encode() not in record.value


async def test_every_token_has_a_secret_of_its_own(app, make_token):
    store = (await app.client()).store
    first, second = await make_token("one"), await make_token("two")
    id_of_first, id_of_second = parts_of(first)[0], parts_of(second)[0]
    assert await find_token(store, first.replace(id_of_first, id_of_second)) is None
    assert (await find_token(store, first)).name == "one"


async def test_two_active_tokens_cannot_have_one_name(app, make_token):
    await make_token("ann")
    with pytest.raises(BadInput, match="already"):
        await make_token("ann")
    client = await app.client()
    await revoke_token(client.store, "ann", now=moment(client.wall()))
    await make_token("ann")
    assert sorted(token.state(moment(client.wall())) for token in await list_tokens(client.store)) == [
        "active", "revoked"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "header",
    ["Bearer daybreak_0123456789abcdef_" + "x" * 43, "Bearer nonsense", "Basic YTpi", "Bearer", "Bearer " + "x" * 9000],
)
async def test_what_is_no_token_is_refused_and_never_ignored(connect, header):
    client = await connect()
    answer = await client.get(SESSION, headers={"authorization": header})
    problem(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_token_in_the_url_is_refused(connect, make_token):
    token = await make_token()
    client = await connect()
    problem(await client.get(SESSION, params={"token": token}), 422, "invalid")
    problem(await client.get(SESSION, params={"access_token": token}), 422, "invalid")


async def test_an_expired_token_is_refused(connect, make_token, world):
    client = await connect(await make_token(expires_in=timedelta(minutes=1)))
    assert (await client.get(SESSION)).status_code == 200
    world.ahead = timedelta(minutes=2)
    assert "expired" in problem(await client.get(SESSION), 401, "unauthenticated")["detail"]


async def test_a_revoked_token_is_refused_within_two_seconds(app, connect, make_token, world):
    client = await connect(await make_token("ann"))
    assert (await client.get(SESSION)).status_code == 200
    store = (await app.client()).store
    await revoke_token(store, "ann", now=moment(world.wall()))
    world.ahead = timedelta(seconds=2)
    assert "revoked" in problem(await client.get(SESSION), 401, "unauthenticated")["detail"]


async def test_without_a_token_one_may_read_only_where_the_server_says_so(connect):
    assert (await (await connect()).get(SESSION)).json()["roles"] == ["read"]
    closed = await connect(settings=ServerSettings())
    problem(await closed.get(SESSION), 401, "unauthenticated")


async def test_a_worker_s_token_reads_nothing(connect, make_token):
    client = await connect(await make_token("w", "work"))
    problem(await client.get(SESSION), 403, "forbidden")


# -- signing in --------------------------------------------------------------------------------------------------------


async def code_of(app):
    client = await app.client()
    return await create_code(client.store, by="ann", now=moment(client.wall()), valid_for=timedelta(hours=1))


async def signed_in(app, client):
    answer = await client.post("/sign-in", data={"code": await code_of(app)})
    assert answer.status_code == 303
    return answer


async def test_the_link_signs_a_person_in_once(app, connect):
    client = await connect()
    code = await code_of(app)
    page = await client.get("/sign-in", params={"code": code})
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    found = re.search(r'name="code" value="([^"]+)"', page.text)
    assert found is not None
    answer = await client.post("/sign-in", data={"code": found[1]})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/"
    session = (await client.get(SESSION)).json()
    assert session["kind"] == "session"
    assert session["by"] == "ann"
    assert "admin" in session["roles"]
    other = await connect()
    problem(await other.post("/sign-in", data={"code": code}), 403, "forbidden")
    problem(await other.get("/sign-in", params={"code": code}), 403, "forbidden")


async def test_to_open_the_link_uses_nothing_up(app, connect):
    client = await connect()
    code = await code_of(app)
    for _ in range(3):
        assert (await client.get("/sign-in", params={"code": code})).status_code == 200
    assert (await client.post("/sign-in", data={"code": code})).status_code == 303


async def test_the_cookie_is_out_of_reach_for_scripts_and_other_sites(app, connect):
    cookie = (await signed_in(app, await connect())).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    secure = await connect(settings=replace(LOCAL, secure_cookies=True))
    cookie = (await signed_in(app, secure)).headers["set-cookie"]
    assert cookie.startswith("__Host-")
    assert "Secure" in cookie


async def test_a_code_and_a_session_end_by_themselves(app, connect, world):
    client = await connect()
    code = await code_of(app)
    await signed_in(app, client)
    world.ahead = timedelta(hours=2)
    problem(await (await connect()).post("/sign-in", data={"code": code}), 403, "forbidden")
    assert (await client.get(SESSION)).json()["kind"] == "session"
    world.ahead = timedelta(hours=13)
    assert (await client.get(SESSION)).json()["kind"] == "anonymous"


async def test_a_change_by_cookie_needs_the_csrf_token(app, connect):
    client = await connect()
    await signed_in(app, client)
    csrf = (await client.get(SESSION)).json()["csrf"]
    problem(await client.delete(SESSION), 403, "forbidden")
    problem(await client.delete(SESSION, headers={"x-csrf-token": "x"}), 403, "forbidden")
    assert (await client.delete(SESSION, headers={"x-csrf-token": csrf})).status_code == 204
    assert (await client.get(SESSION)).json()["kind"] == "anonymous"


async def test_a_session_that_was_ended_is_ended_on_every_server(app, connect):
    first = await connect()
    await signed_in(app, first)
    second = await connect(cookies=first.cookies)
    assert (await second.get(SESSION)).json()["kind"] == "session"
    csrf = (await first.get(SESSION)).json()["csrf"]
    await first.delete(SESSION, headers={"x-csrf-token": csrf})
    assert (await second.get(SESSION)).json()["kind"] == "anonymous"


# -- hosts, origins and rates ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.test", "evil.test:8765", "localhost.evil.test", "", "a b", "localhost@evil.test"]
)
async def test_a_host_that_is_not_ours_is_refused(connect, host):
    client = await connect()
    problem(await client.get("/health/live", headers={"host": host}), 421, "misdirected")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8765", "127.0.0.1:8765", "[::1]:8765"])
async def test_our_own_names_and_addresses_are_answered(connect, host):
    assert (await (await connect()).get("/health/live", headers={"host": host})).status_code == 200


async def test_a_mounted_server_leaves_hosts_to_the_outer_application(connect):
    client = await connect(settings=ServerSettings())
    assert (await client.get("/health/live", headers={"host": "jobs.example.com"})).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.test"},
        {"origin": "null"},
        {"origin": "http://localhost:1"},
        {"sec-fetch-site": "cross-site"},
    ],
)
async def test_a_page_of_another_site_changes_nothing(app, connect, headers):
    client = await connect()
    code = await code_of(app)
    problem(await client.post("/sign-in", data={"code": code}, headers=headers), 403, "cross-origin")
    same = await client.post("/sign-in", data={"code": code}, headers={"origin": "http://localhost"})
    assert same.status_code == 303


async def test_too_many_requests_are_told_when_to_come_back(connect, make_token, world):
    client = await connect(await make_token(), settings=replace(LOCAL, requests_per_second=0.5, request_burst=3))
    for _ in range(3):
        assert (await client.get(SESSION)).status_code == 200
    answer = await client.get(SESSION)
    problem(answer, 429, "rate-limited")
    assert answer.headers["retry-after"] == "2"
    world.ahead = timedelta(seconds=2)
    assert (await client.get(SESSION)).status_code == 200


async def test_each_token_has_a_rate_of_its_own(connect, make_token):
    settings = replace(LOCAL, requests_per_second=0.01, request_burst=1)
    first = await connect(await make_token("one"), settings=settings)
    assert (await first.get(SESSION)).status_code == 200
    problem(await first.get(SESSION), 429, "rate-limited")
    other = {"authorization": f"Bearer {await make_token('two')}"}
    assert (await first.get(SESSION, headers=other)).status_code == 200

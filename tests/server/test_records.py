"""What servers keep in the store: each kind is forgotten when it has ended, and tokens go along when a store moves."""

from __future__ import annotations

from datetime import timedelta

from daybreak.client.server_records import SESSION, SIGN_IN_CODE, TOKEN, forget_server_records
from daybreak.client.store_migration import Mover
from daybreak.core.units import moment
from daybreak.server.access.sessions import create_code, find_session, sign_in
from daybreak.server.access.tokens import create_token, find_token, revoke_token
from daybreak.services.janitor import Janitor
from daybreak.stores.sqlite import SqliteStore


async def kept(store):
    return [len(await store.records(kind)) for kind in (TOKEN, SESSION, SIGN_IN_CODE)]


async def test_what_has_ended_is_forgotten_and_nothing_else(app, world):
    store = (await app.client()).store
    now = moment(world.wall())
    await create_token(store, "stays", ["read"], now=now)
    await create_token(store, "expires", ["read"], now=now, expires_in=timedelta(days=1))
    await create_token(store, "revoked", ["read"], now=now)
    await revoke_token(store, "revoked", now=now)
    code = await create_code(store, by="ann", now=now, valid_for=timedelta(hours=1))
    await sign_in(store, code, now=now, valid_for=timedelta(hours=12))
    await create_code(store, by="ann", now=now, valid_for=timedelta(hours=1))
    for days, left in ((0.03, [3, 1, 1]), (0.1, [3, 1, 0]), (1, [3, 0, 0]), (30.5, [2, 0, 0]), (32, [1, 0, 0])):
        await forget_server_records(store, now + timedelta(days=days))
        assert await kept(store) == left, days


async def test_the_janitor_of_a_worker_forgets_for_servers_too(app, world):
    store = (await app.client()).store
    now = moment(world.wall())
    await create_code(store, by="ann", now=now, valid_for=timedelta(minutes=1))
    janitor = Janitor(store, world, name="j")
    world.ahead = timedelta(hours=2)
    await janitor.tick()
    assert await kept(store) == [0, 0, 0]


async def test_one_code_makes_one_session_whoever_else_tries_it(app, world):
    store = (await app.client()).store
    now = moment(world.wall())
    code = await create_code(store, by="ann", now=now, valid_for=timedelta(hours=1))
    secret, session = await sign_in(store, code, now=now, valid_for=timedelta(hours=12))
    assert await sign_in(store, code, now=now, valid_for=timedelta(hours=12)) is None
    assert await find_session(store, secret, now=now) == session
    assert await find_session(store, secret + "x", now=now) is None


async def test_a_moved_store_knows_its_tokens_and_no_session(app, world, tmp_path):
    store = (await app.client()).store
    now = moment(world.wall())
    _, text = await create_token(store, "ann", ["read"], now=now)
    code = await create_code(store, by="ann", now=now, valid_for=timedelta(hours=1))
    await sign_in(store, code, now=now, valid_for=timedelta(hours=12))
    async with SqliteStore(tmp_path / "other.db") as target:
        await Mover(store, target, world, by="mover").run()
        assert (await find_token(target, text)).name == "ann"
        assert await kept(target) == [1, 0, 0]

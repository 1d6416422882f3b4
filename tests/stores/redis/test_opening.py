"""Opening a store: addresses, whether the server is suitable, and what `doctor` reports."""

from __future__ import annotations

import os
import shutil
import subprocess
from datetime import timedelta

import pytest
from redis_servers import REDIS, connect, free_port, fresh, need_redis, private

from daybreak.core.errors import BadInput, StoreTooNew, StoreUnavailable, StoreUnsuitable
from daybreak.store.protocol import Examines
from daybreak.stores.redis import RedisStore, hiredis
from daybreak.stores.redis.address import parse
from daybreak.testing.contract.builders import accept, jobs_of, spec


@pytest.fixture
def namespace():
    need_redis()
    with fresh() as name:
        yield name


# -- addresses ---------------------------------------------------------------------------------------------------------


def test_urls_of_every_kind_are_read():
    assert parse("redis://").host == "localhost"
    plain = parse("redis://ann:s%40crt@example.org:7000/3?namespace=mail")
    assert (plain.host, plain.port, plain.db, plain.username, plain.password) == (
        "example.org", 7000, 3, "ann", "s@crt",
    )  # fmt: skip
    assert plain.namespace == "mail"
    assert parse("rediss://host").context() is not None
    assert not parse("valkey://host:1").secure
    assert (parse("unix:///run/redis.sock?db=2").path, parse("unix:///run/redis.sock?db=2").db) == (
        "/run/redis.sock",
        2,
    )
    assert parse("redis://[::1]:7000").host == "::1"


@pytest.mark.parametrize("url", ["http://host", "redis://host/x", "redis://host:99999", "redis://host?timout=3"])
def test_a_url_that_cannot_be_right_is_refused(url):
    with pytest.raises(BadInput):
        RedisStore(url)


def test_a_namespace_may_not_break_out_of_its_slot():
    for name in ("a{b", "a}b", "a\nb"):
        with pytest.raises(BadInput, match="namespace"):
            RedisStore(REDIS, namespace=name)


def test_a_password_is_never_shown():
    store = RedisStore("redis://ann:topsecret@127.0.0.1:1")
    assert "topsecret" not in f"{store!r} {store._client.address!r} {store._client.address}"


@pytest.mark.parametrize("url", ["redis://:12/34@h", "redis://:12#34@h", "redis://:12?34=5@h", "redis://:12[34@h"])
def test_a_password_that_was_not_encoded_is_refused_and_not_repeated(url):
    with pytest.raises(BadInput, match="percent-encode special characters of the password") as refused:
        RedisStore(url)
    assert "12" not in str(refused.value)
    assert "34" not in str(refused.value)


def test_what_is_no_password_may_hold_an_at_sign():
    assert parse("unix:///run/a@b.sock").path == "/run/a@b.sock"
    assert parse("redis://h?namespace=a@b&ssl_ca_certs=/a@b").namespace == "a@b"
    assert (parse("redis://:p@ss@h").password, parse("redis://:p@ss@h").host) == ("p@ss", "h")


async def test_a_server_that_is_not_there_is_unavailable():
    with pytest.raises(StoreUnavailable, match="cannot be reached") as raised:
        await RedisStore("redis://:topsecret@127.0.0.1:1").open()
    assert "topsecret" not in str(raised.value)


async def test_namespaces_know_nothing_of_each_other(namespace):
    with fresh() as other:
        async with RedisStore(REDIS, namespace=namespace) as one, RedisStore(f"{REDIS}?namespace={other}") as two:
            await accept(one)
            assert len(await jobs_of(one)) == 1
            assert await jobs_of(two) == []


# -- suitable servers --------------------------------------------------------------------------------------------------


async def test_a_server_that_would_throw_jobs_away_is_refused(tmp_path):
    says = r"maxmemory-policy allkeys-lru.*noeviction"
    with (
        private(tmp_path, "--maxmemory-policy", "allkeys-lru") as server,
        pytest.raises(StoreUnsuitable, match=says),
    ):
        await RedisStore(server.url).open()


async def test_a_server_that_was_refused_can_still_be_asked_why(tmp_path):
    with private(tmp_path, "--maxmemory-policy", "allkeys-lru") as server:
        found = await RedisStore(server.url).examine()
        assert [finding.cure for finding in found if not finding.is_well] == ["set it to noeviction"]
        with connect(server.url) as connection:
            assert connection.call(("DBSIZE",)) == 0


async def test_errors_about_passwords_and_permissions_are_clear(tmp_path):
    settings = ("--requirepass", "topsecret", "--user", "weak", "on", ">pw", "~*", "&*", "+@all", "-evalsha", "-eval")
    with private(tmp_path, *settings, password="topsecret") as server:  # noqa: S106
        for url, says in (
            (server.url, "asks for a password"),
            (server.url.replace("//", "//:wrong@"), "refuses this user name and password"),
            (server.url.replace("//", "//weak:pw@"), "does not permit"),
        ):
            with pytest.raises(StoreUnsuitable, match=says) as raised:
                await RedisStore(url).open()
            assert "wrong" not in str(raised.value)
        async with RedisStore(server.url.replace("//", "//:topsecret@")) as store:
            await accept(store)
            assert [answer.verdict for answer in store.insert_now([spec()])] == ["new"]


async def test_a_user_without_channels_is_refused_with_the_cure_before_anything_is_written(tmp_path):
    with private(tmp_path, "--user", "new", "on", ">pw", "resetchannels", "~{mail}:*", "+@all") as server:
        store = RedisStore(server.url.replace("//", "//new:pw@"), namespace="mail")
        cure = "ACL SETUSER new '&{mail}:*'"
        with pytest.raises(StoreUnsuitable, match="wake others") as raised:
            await store.open()
        assert cure in str(raised.value)
        assert [finding.cure for finding in await store.examine() if not finding.is_well] == [cure]
        with connect(server.url) as connection:
            assert connection.call(("DBSIZE",)) == 0
            connection.call(("ACL", "SETUSER", "new", "&{mail}:*"))
        async with store:
            await accept(store)
            assert all(finding.is_well for finding in await store.examine())


async def test_a_thread_that_submits_is_refused_by_a_namespace_of_a_newer_daybreak(namespace):
    """It has a connection of its own, which asks for no version when it is made."""
    async with RedisStore(REDIS, namespace=namespace) as store:
        store.insert_now([spec()])
        with connect() as connection:
            connection.call(("HSET", f"{{{namespace}}}:meta", "version", 99, "needs", 99))
            with pytest.raises(StoreTooNew, match=r"newer Daybreak \(schema 99, this one knows 1\)"):
                store.insert_now([spec()])
            connection.call(("HSET", f"{{{namespace}}}:meta", "needs", 1))  # newer, but we can work on it
        store.insert_now([spec()])
        assert len(await jobs_of(store)) == 2
    async with RedisStore(REDIS, namespace=namespace):
        with connect() as connection:
            assert connection.call(("HGET", f"{{{namespace}}}:meta", "version")) == b"99"


def test_a_missing_library_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(hiredis, "_pack", None)
    with pytest.raises(StoreUnsuitable, match=r"pip install 'daybreak\[redis\]'"):
        RedisStore(REDIS)


# -- open, closed, forked ----------------------------------------------------------------------------------------------


async def test_a_store_that_is_not_open_says_so(namespace):
    store = RedisStore(REDIS, namespace=namespace)
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.get(["x"])
    with pytest.raises(StoreUnavailable, match="not open"):
        store.insert_now([spec()])
    await store.close()
    async with store:
        await store.open()
        await accept(store)
    await store.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.insert([spec()])
    async with store:  # and again
        assert len(await jobs_of(store)) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_forked_child_gets_an_error_and_harms_nothing(namespace):
    async with RedisStore(REDIS, namespace=namespace) as store:
        await accept(store)
        store.insert_now([spec()])
        child = os.fork()
        if not child:
            try:
                store.insert_now([spec()])
            except StoreUnavailable as raised:
                os._exit(0 if "fork" in str(raised) else 2)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0  # noqa: ASYNC222 - it ends at once
        await accept(store)
        assert len(await jobs_of(store)) == 3


# -- doctor ------------------------------------------------------------------------------------------------------------


async def test_what_a_crash_would_lose_is_said_in_plain_words(tmp_path):
    with private(tmp_path) as server:
        async with RedisStore(server.url) as store:
            assert "loses nothing" in store.traits.durable
            assert isinstance(store, Examines)
            found = await store.examine()
            assert all(finding.is_well for finding in found), found
            text = " | ".join(finding.what for finding in found)
            for word in ("Redis 7", "memory", "noeviction", "appendfsync always", "no replicas", "clock agrees"):
                assert word in text
            with connect(server.url) as connection:
                connection.call(("CONFIG", "SET", "appendfsync", "everysec"))
                [disk] = [finding for finding in await store.examine() if "everysec" in finding.what]
                assert not disk.is_well
                assert "last second" in disk.what
                connection.call(("CONFIG", "SET", "appendonly", "no"))
                [disk] = [finding for finding in await store.examine() if "every job" in finding.what]
                assert "appendonly yes" in disk.cure
                connection.call(("CONFIG", "SET", "save", "60 100"))
                assert any("since the last one" in finding.what for finding in await store.examine())
                connection.call(("CONFIG", "SET", "maxmemory-policy", "allkeys-lru"))
                assert any(finding.cure == "set it to noeviction" for finding in await store.examine())


# -- unix sockets and TLS ----------------------------------------------------------------------------------------------


async def test_a_unix_socket_is_as_good(tmp_path):
    path = tmp_path / "redis.sock"
    with private(tmp_path, "--unixsocket", str(path)):
        async with RedisStore(f"unix://{path}?db=3") as store:
            await accept(store)
            assert [answer.verdict for answer in store.insert_now([spec()])] == ["new"]
            watch = store.watch(["work:default"])
            assert await watch.wait(timedelta(seconds=5))
            watch.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
async def test_tls_checks_the_servers_certificate(tmp_path):
    key, certificate, port = tmp_path / "key.pem", tmp_path / "cert.pem", free_port()
    subprocess.run(  # noqa: ASYNC221 - nothing else runs here
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "1",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    settings = ("--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key),
                "--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no")  # fmt: skip
    with private(tmp_path, *settings):
        async with RedisStore(f"rediss://localhost:{port}?ssl_ca_certs={certificate}") as store:
            await accept(store)
            assert [answer.verdict for answer in store.insert_now([spec()])] == ["new"]
        with pytest.raises(StoreUnavailable, match="certificate"):
            await RedisStore(f"rediss://localhost:{port}").open()

"""Checks whether a server is suitable and what it could lose: when a store is opened, and for `doctor`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from daybreak.core.errors import BadInput, StoreUnsuitable
from daybreak.store.protocol import Finding, ok_finding
from daybreak.stores.redis import faults
from daybreak.stores.redis.client import RedisClient
from daybreak.stores.redis.connection import Connection, ConnectionLost
from daybreak.stores.redis.hiredis import ErrorReply

MIN_VERSION = (6, 2)
NO_EVICTION = "noeviction"
_DURABILITY = {
    "always": "every commit is synced to disk (appendfsync always): a crash or a power cut loses nothing",
    "everysec": "the disk is synced once a second (appendfsync everysec): a power cut may lose the last second or two; "
    "a crash of the server alone loses nothing",
    "no": "the operating system decides when to sync (appendfsync no): a power cut may lose half a minute; "
    "a crash of the server alone loses nothing",
}


def checked_namespace(name: str) -> str:
    if not name or any(letter in name for letter in "{}") or not name.isprintable():
        raise BadInput(
            f"{name!r} is not a namespace: use letters, digits and other printable characters, but no braces"
        )
    return name


async def check_server(client: RedisClient) -> str:
    """Refuse a server that would discard jobs; returns what it guarantees, in words."""
    facts = await _facts(client, await client.connection())
    if (version := _version(facts)) < MIN_VERSION:
        raise StoreUnsuitable(
            f"{client.address} is version {version[0]}.{version[1]}: the store needs 6.2 or newer; upgrade the server"
        )
    policy = facts.get("maxmemory_policy", NO_EVICTION)
    if policy != NO_EVICTION:
        raise StoreUnsuitable(
            f"{client.address} discards data when its memory is full (maxmemory-policy {policy}), accepted jobs "
            f"included: set maxmemory-policy to {NO_EVICTION}"
        )
    return _durable(facts)


async def _facts(client: RedisClient, connection: Connection) -> dict[str, str]:
    """The values of INFO and, where it is permitted, of CONFIG GET."""
    names = ("appendonly", "appendfsync", "save", "maxmemory-policy", "maxmemory")
    try:
        reply, *settings = await asyncio.gather(
            connection.call(("INFO",)), *(connection.call(("CONFIG", "GET", name)) for name in names)
        )
    except ConnectionLost as error:
        raise faults.connection_cut(client.address, str(error)) from None
    if isinstance(reply, ErrorReply):
        if faults.error_code(str(reply)) != "NOPERM":
            raise faults.error_reply(client.address, str(reply))
        return {}
    facts = _pairs(reply)
    for name, found in zip(names, settings, strict=True):
        if isinstance(found, list) and len(found) > 1:
            facts[name.replace("-", "_")] = found[1].decode()
    return facts


def _pairs(reply: bytes) -> dict[str, str]:
    lines = (text.partition(":") for text in reply.decode().splitlines() if not text.startswith("#"))
    return {name: value for name, sign, value in lines if sign}


def _version(facts: dict[str, str]) -> tuple[int, int]:
    text = facts.get("valkey_version") or facts.get("redis_version") or "99.0"
    major, _, rest = text.partition(".")
    return int(major), int(rest.partition(".")[0] or 0)


def _durable(facts: dict[str, str]) -> str:
    if facts.get("appendonly", "yes" if facts.get("aof_enabled") == "1" else "no") == "yes":
        return _DURABILITY.get(
            facts.get("appendfsync", ""), "an append-only file is written; how often it is synced is unknown"
        )
    if facts.get("save"):
        return (
            f"only snapshots are kept (save {facts['save']}, appendonly no): a crash loses all jobs accepted since the "
            "last one"
        )
    return "nothing is kept on disk (appendonly no, no snapshots): a crash of the server loses every job"


# -- doctor ------------------------------------------------------------------------------------------------------------


async def examine(client: RedisClient) -> list[Finding]:
    """Examine the server over a separate connection that writes nothing, so that an unsuitable server can be examined,
    too."""
    connection = await client.connect()
    try:
        return await _examine(client, connection)
    finally:
        connection.close()
        await connection.socket_closed


async def _examine(client: RedisClient, connection: Connection) -> list[Finding]:
    facts = await _facts(client, connection)
    if not facts:
        return [
            Finding(
                f"{client.address} is reachable, but does not permit this user to read its state",
                cure="permit the commands INFO and CONFIG GET, or check its settings yourself",
            ),
            *await _channels(client, connection),
        ]
    return [
        _server(client, facts), _memory(facts), _policy(facts), _disk(facts), _errors(facts), *_replicas(facts),
        *await _channels(client, connection), await _clock(connection),
    ]  # fmt: skip


def _server(client: RedisClient, facts: dict[str, str]) -> Finding:
    name = "Valkey" if "valkey_version" in facts else "Redis"
    version = facts.get("valkey_version") or facts.get("redis_version", "?")
    return Finding(
        f"{name} {version} at {client.address}, namespace {client.namespace}", _version(facts) >= MIN_VERSION,
        "" if _version(facts) >= MIN_VERSION else "upgrade the server to 6.2 or newer",
    )  # fmt: skip


def _memory(facts: dict[str, str]) -> Finding:
    used, maximum = int(facts.get("used_memory", 0)), int(facts.get("maxmemory", 0))
    what = f"memory: {used / 2**20:.0f} MiB used"
    if not maximum:
        return ok_finding(f"{what}, no limit set (maxmemory 0)")
    what += f" of {maximum / 2**20:.0f} MiB"
    if used < 0.9 * maximum:
        return ok_finding(what)
    return Finding(
        what,
        cure="raise maxmemory, keep finished jobs for a shorter time, or give cached tasks a size (Cache(size=...)): "
        "at the limit new jobs are refused",
    )


def _policy(facts: dict[str, str]) -> Finding:
    policy = facts.get("maxmemory_policy", "unknown")
    if policy == NO_EVICTION:
        return Finding(
            f"when the memory is full, writes are refused and nothing is discarded (maxmemory-policy {NO_EVICTION})",
            is_well=True,
        )
    return Finding(
        f"when the memory is full, accepted jobs may be discarded (maxmemory-policy {policy})",
        cure=f"set it to {NO_EVICTION}",
    )


def _disk(facts: dict[str, str]) -> Finding:
    what = _durable(facts)
    if facts.get("appendonly") == "yes" and facts.get("appendfsync") == "always":
        return ok_finding(what)
    return Finding(what, cure="for jobs that must not be lost set appendonly yes and appendfsync always")


def _errors(facts: dict[str, str]) -> Finding:
    failed = [
        name for name in ("rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status")
        if facts.get(name, "ok") != "ok"
    ]  # fmt: skip
    if failed:
        return Finding(f"the last write to disk failed ({', '.join(failed)})", cure="check the server's disk and log")
    return ok_finding("the last writes to disk succeeded")


def _replicas(facts: dict[str, str]) -> list[Finding]:
    if facts.get("role") == "slave":
        return [Finding("this server is a replica and accepts no writes", cure="connect to its master")]
    if int(facts.get("connected_slaves", 0)) == 0:
        return [ok_finding("no replicas: if this machine is lost, so are its jobs")]
    return [
        ok_finding(
            f"{facts['connected_slaves']} replicas: they lag a moment behind, so a failover may lose jobs that were "
            "accepted just before"
        )
    ]


async def _channels(client: RedisClient, connection: Connection) -> list[Finding]:
    """Publish a message that nobody receives, as open.lua does, to check the permission."""
    reply = await connection.call(("PUBLISH", client.prefix + b"wake:", ""))
    if not isinstance(reply, ErrorReply) or not faults.is_channel_error(str(reply)):
        return []
    return [
        Finding(
            "this user has no permission for the channels that wake others, so the store refuses to open",
            cure=faults.grant_command(client.address, client.prefix),
        )
    ]


async def _clock(connection: Connection) -> Finding:
    before = time.time()
    reply: Any = await connection.call(("TIME",))
    after = time.time()
    if isinstance(reply, ErrorReply):
        return Finding("the server does not tell its time", cure="permit the command TIME")
    shown = int(reply[0]) + int(reply[1]) / 1e6
    difference = max(before - shown, shown - after, 0.0)
    if difference < 1:
        return ok_finding("the server's clock agrees with this machine's")
    return Finding(
        f"the server's clock and this machine's differ by {difference:.0f} s; the server's decides when jobs are due",
        cure="synchronise both with NTP",
    )

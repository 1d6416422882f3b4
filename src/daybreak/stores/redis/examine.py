"""Is this server fit, and what would it lose? Asked when a store is opened, and by doctor."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from daybreak.core.errors import BadInput, StoreUnsuitable
from daybreak.store.protocol import Finding, ok_finding
from daybreak.stores.redis import faults
from daybreak.stores.redis.client import RedisClient
from daybreak.stores.redis.connection import Link, Lost
from daybreak.stores.redis.hiredis import Refusal

OLDEST = (6, 2)
KEEPS = "noeviction"
_LOSES = {
    "always": "every commit is synced to disk (appendfsync always): a crash or a power cut loses nothing",
    "everysec": "the disk is synced once a second (appendfsync everysec): a power cut may lose the last second or two; "
    "a crash of the server alone loses nothing",
    "no": "the operating system decides when to sync (appendfsync no): a power cut may lose half a minute; "
    "a crash of the server alone loses nothing",
}


def checked_namespace(name: str) -> str:
    if not name or any(letter in name for letter in "{}") or not name.isprintable():
        raise BadInput(f"{name!r} is no namespace: use letters, digits and signs, but no braces")
    return name


async def suit(line: RedisClient) -> str:
    """Refuse a server that would throw jobs away; what it promises of the rest, in words."""
    facts = await _facts(line, await line.link())
    if (version := _version(facts)) < OLDEST:
        raise StoreUnsuitable(f"{line.address} is version {version[0]}.{version[1]}: the store needs 6.2 or newer")
    policy = facts.get("maxmemory_policy", KEEPS)
    if policy != KEEPS:
        raise StoreUnsuitable(
            f"{line.address} throws data away when its memory is full (maxmemory-policy {policy}), accepted jobs "
            f"included: set maxmemory-policy to {KEEPS}"
        )
    return _durable(facts)


async def _facts(line: RedisClient, link: Link) -> dict[str, str]:
    """What INFO says, and what CONFIG adds where it is permitted."""
    names = ("appendonly", "appendfsync", "save", "maxmemory-policy", "maxmemory")
    try:
        reply, *settings = await asyncio.gather(
            link.ask(("INFO",)), *(link.ask(("CONFIG", "GET", name)) for name in names)
        )
    except Lost as error:
        raise faults.cut(line.address, str(error)) from None
    if isinstance(reply, Refusal):
        if faults.word(str(reply)) != "NOPERM":
            raise faults.refused(line.address, str(reply))
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
    said = facts.get("valkey_version") or facts.get("redis_version") or "99.0"
    major, _, rest = said.partition(".")
    return int(major), int(rest.partition(".")[0] or 0)


def _durable(facts: dict[str, str]) -> str:
    if facts.get("appendonly", "yes" if facts.get("aof_enabled") == "1" else "no") == "yes":
        return _LOSES.get(
            facts.get("appendfsync", ""), "there is an append-only file; how often it is synced is unknown"
        )
    if facts.get("save"):
        return (
            f"only snapshots are kept (save {facts['save']}, appendonly no): a crash loses all jobs accepted since the "
            "last one"
        )
    return "nothing is kept on disk (appendonly no, no snapshots): a crash of the server loses every job"


# -- doctor ------------------------------------------------------------------------------------------------------------


async def examine(line: RedisClient) -> list[Finding]:
    """Over a connection of its own, which writes nothing: also a server that was refused can be asked why."""
    link = await line.dial()
    try:
        return await _examine(line, link)
    finally:
        link.close()
        await link.gone


async def _examine(line: RedisClient, link: Link) -> list[Finding]:
    facts = await _facts(line, link)
    if not facts:
        return [
            Finding(
                f"{line.address} is reachable, but does not let this user ask how it is",
                cure="permit the commands INFO and CONFIG GET, or look at its settings yourself",
            ),
            *await _channels(line, link),
        ]
    return [
        _server(line, facts), _memory(facts), _policy(facts), _disk(facts), _errors(facts), *_replicas(facts),
        *await _channels(line, link), await _clock(link),
    ]  # fmt: skip


def _server(line: RedisClient, facts: dict[str, str]) -> Finding:
    name = "Valkey" if "valkey_version" in facts else "Redis"
    version = facts.get("valkey_version") or facts.get("redis_version", "?")
    return Finding(
        f"{name} {version} at {line.address}, namespace {line.namespace}", _version(facts) >= OLDEST,
        "" if _version(facts) >= OLDEST else "upgrade the server to 6.2 or newer",
    )  # fmt: skip


def _memory(facts: dict[str, str]) -> Finding:
    used, most = int(facts.get("used_memory", 0)), int(facts.get("maxmemory", 0))
    told = f"memory: {used / 2**20:.0f} MiB used"
    if not most:
        return ok_finding(f"{told}, no limit set (maxmemory 0)")
    told += f" of {most / 2**20:.0f} MiB"
    if used < 0.9 * most:
        return ok_finding(told)
    return Finding(
        told, cure="raise maxmemory or keep finished jobs for a shorter time: at the limit new jobs are refused"
    )


def _policy(facts: dict[str, str]) -> Finding:
    policy = facts.get("maxmemory_policy", "unknown")
    if policy == KEEPS:
        return Finding(
            f"memory full: writes are refused and nothing is thrown away (maxmemory-policy {KEEPS})", is_well=True
        )
    return Finding(
        f"memory full: accepted jobs may be thrown away (maxmemory-policy {policy})", cure=f"set it to {KEEPS}"
    )


def _disk(facts: dict[str, str]) -> Finding:
    told = _durable(facts)
    if facts.get("appendonly") == "yes" and facts.get("appendfsync") == "always":
        return ok_finding(told)
    return Finding(told, cure="for jobs that must not be lost set appendonly yes and appendfsync always")


def _errors(facts: dict[str, str]) -> Finding:
    bad = [
        name for name in ("rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status")
        if facts.get(name, "ok") != "ok"
    ]  # fmt: skip
    if bad:
        return Finding(f"the last write to disk failed ({', '.join(bad)})", cure="look at the server's disk and log")
    return ok_finding("the last writes to disk went well")


def _replicas(facts: dict[str, str]) -> list[Finding]:
    if facts.get("role") == "slave":
        return [Finding("this server is a replica and takes no writes", cure="connect to its master")]
    if int(facts.get("connected_slaves", 0)) == 0:
        return [ok_finding("no replicas: if this machine is lost, so are its jobs")]
    return [
        ok_finding(
            f"{facts['connected_slaves']} replicas: they follow a moment behind, so a failover may lose jobs that were "
            "accepted just before"
        )
    ]


async def _channels(line: RedisClient, link: Link) -> list[Finding]:
    """A word that nobody hears, as in open.lua."""
    reply = await link.ask(("PUBLISH", line.prefix + b"wake:", ""))
    if not isinstance(reply, Refusal) or not faults.is_channel(str(reply)):
        return []
    return [
        Finding(
            "this user has no right to the channels by which the store wakes others, so it is refused",
            cure=faults.grant(line.address, line.prefix),
        )
    ]


async def _clock(link: Link) -> Finding:
    before = time.time()
    reply: Any = await link.ask(("TIME",))
    after = time.time()
    if isinstance(reply, Refusal):
        return Finding("the server does not tell its time", cure="permit the command TIME")
    shown = int(reply[0]) + int(reply[1]) / 1e6
    apart = max(before - shown, shown - after, 0.0)
    if apart < 1:
        return ok_finding("the server's clock agrees with this machine's")
    return Finding(
        f"the server's clock and this machine's are {apart:.0f} s apart; the server's decides when jobs are due",
        cure="set both by NTP",
    )

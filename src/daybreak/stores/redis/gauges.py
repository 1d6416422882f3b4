"""Packs the needs of jobs and the settings of resources for scripts, and unpacks the gauges that scripts store."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from daybreak.core.model import Gate, Health, JobSpec, ResourceSettings
from daybreak.core.units import clean, moment, span
from daybreak.store.protocol import Usage
from daybreak.stores.redis import codes, scripts
from daybreak.stores.redis.client import RedisClient
from daybreak.stores.redis.event_codec import SHORT, sized

_HOLDER: Final = struct.Struct("<BdH")
_SLOTS: Final = struct.Struct("<d")
_SETTINGS: Final = struct.Struct("<4d")
_GATE: Final = struct.Struct("<2d")
_HEALTH: Final = struct.Struct("<d")
_IS_HELD, _FAILS_FAST = 1, 2
_GAUGE: Final = struct.Struct("<4d")  # max_waiting, used, waiting, shut_until; only scripts read the rest


def pack_needs(spec: JobSpec) -> bytes:
    """The holder, whether the job fails fast, and the slots that it needs of each resource; empty if it needs none."""
    if not spec.options.resources:
        return b""
    holder = (spec.holder or "").encode()
    flags = _IS_HELD * (spec.holder is not None) + _FAILS_FAST * spec.options.fail_fast
    packed = [_HOLDER.pack(flags, span(spec.hold_for), sized(holder)), holder]
    for need in spec.options.resources:
        name = need.resource.encode()
        packed += (SHORT.pack(sized(name)), name, _SLOTS.pack(need.slots))
    return b"".join(packed)


def pack_settings(settings: ResourceSettings) -> bytes:
    every = 0 if settings.every is None else span(settings.every)
    return _SETTINGS.pack(_limit(settings.slots), every, settings.burst, _limit(settings.max_waiting))


def pack_gate(gate: Gate) -> bytes:
    return _GATE.pack(span(gate.shut_for), _limit(gate.probes))


def pack_health(health: Health) -> bytes:
    return _HEALTH.pack(span(health.spare_for))


def _limit(value: int | None) -> int:
    return codes.NONE if value is None else max(value, 0)


async def usage(client: RedisClient, name: str | None) -> list[Usage]:
    _, names, found = await client.run(scripts.USAGE, (clean(name or ""), int(name is not None)))
    used = {resource.decode(): Usage(name=resource.decode()) for resource in names}
    for resource, gauge in zip(found[::2], found[1::2], strict=True):
        if gauge is not None:
            item = _usage(resource.decode(), _GAUGE.unpack_from(gauge))
            if item.used or item.waiting or item.shut_until is not None or item.name in used:
                used[item.name] = item
    return sorted(used.values())


def _usage(name: str, gauge: Sequence[Any]) -> Usage:
    _, used, waiting, shut_until = gauge
    return Usage(
        name=name, used=int(used), waiting=int(waiting), shut_until=moment(int(shut_until)) if shut_until else None
    )

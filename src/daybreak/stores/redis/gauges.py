"""Resources: what jobs need of them and what is set of them, as numbers for scripts; and what scripts keep of them."""

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
_IS_HELD, _IS_HASTY = 1, 2
_GAUGE: Final = struct.Struct("<4d")  # max_waiting, used, waiting, shut_until; the rest is the scripts' own


def pack_needs(spec: JobSpec) -> bytes:
    """Who holds it, whether it will not wait for a breaker, and the slots it needs of each resource; empty if it needs
    nothing."""
    if not spec.options.resources:
        return b""
    holder = (spec.holder or "").encode()
    flags = _IS_HELD * (spec.holder is not None) + _IS_HASTY * spec.options.fail_fast
    packed = [_HOLDER.pack(flags, span(spec.hold_for), sized(holder)), holder]
    for need in spec.options.resources:
        name = need.resource.encode()
        packed += (SHORT.pack(sized(name)), name, _SLOTS.pack(need.slots))
    return b"".join(packed)


def pack_settings(said: ResourceSettings) -> bytes:
    every = 0 if said.every is None else span(said.every)
    return _SETTINGS.pack(_limit(said.slots), every, said.burst, _limit(said.max_waiting))


def pack_gate(said: Gate) -> bytes:
    return _GATE.pack(span(said.shut_for), _limit(said.probes))


def pack_health(said: Health) -> bytes:
    return _HEALTH.pack(span(said.spare_for))


def _limit(said: int | None) -> int:
    return codes.NONE if said is None else max(said, 0)


async def usage(line: RedisClient, name: str | None) -> list[Usage]:
    _, known, found = await line.run(scripts.USAGE, (clean(name or ""), int(name is not None)))
    used = {called.decode(): Usage(name=called.decode()) for called in known}
    for called, gauge in zip(found[::2], found[1::2], strict=True):
        if gauge is not None:
            one = _usage(called.decode(), _GAUGE.unpack_from(gauge))
            if one.used or one.waiting or one.shut_until is not None or one.name in used:
                used[one.name] = one
    return sorted(used.values())


def _usage(name: str, gauge: Sequence[Any]) -> Usage:
    _, used, waiting, shut_until = gauge
    return Usage(
        name=name, used=int(used), waiting=int(waiting), shut_until=moment(int(shut_until)) if shut_until else None
    )

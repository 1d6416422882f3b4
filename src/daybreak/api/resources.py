"""Resources that jobs share: reads and changes their settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from daybreak.client.client import Client
from daybreak.core.errors import BadInput, RecordChanged
from daybreak.core.model import NO_GATE, UNLIMITED, Breaker, Gate, Put, ResourceSettings
from daybreak.core.resource_gauge import RETRY_CAUSE_PREFIX, spared_resource
from daybreak.policy.resources import LOCK_PREFIX, Resource, check_resource, parse_settings, rate_text
from daybreak.store.protocol import Store, Usage

DECLARED: Final = "declared resource"  # the records that hold the settings declared in the code
KINDS: Final = ("resource", DECLARED, "gate")
TRIES: Final = 20


class ResourceInfo(Struct, frozen=True, kw_only=True):
    """A resource at one instant. `breaker` is the state of its breaker; `breaker_settings` say when it opens and
    closes. `retries_waiting` counts the retries that wait because the resource is failing and its retries are limited.
    `differs` is True if a person has set it differently from what the code declares."""

    name: str
    slots: int | None
    used: int
    waiting: int
    retries_waiting: int
    rate: str
    burst: int
    max_waiting: int | None
    breaker: str
    failures: int
    opened: int
    shut_until: datetime | None
    set_by: str
    differs: bool
    breaker_settings: Breaker | None = None


async def all_resources(client: Client) -> list[ResourceInfo]:
    """All resources that have settings, holders or waiting jobs, by name."""
    return await _infos(client.store, await client.store.usage())


async def info_of(client: Client, name: str) -> ResourceInfo:
    """One resource; without any limit if the store does not know it."""
    [usage] = await client.store.usage(name) or [Usage(name=name)]
    [info] = await _infos(client.store, [usage, *await client.store.usage(RETRY_CAUSE_PREFIX + name)], name)
    return info


async def settings_in(client: Client, name: str) -> ResourceSettings:
    """The settings in force; no limits if the store does not know the resource."""
    return (await _read(client.store, "resource", name))[0]


async def set_resource(client: Client, name: str, **changes: Any) -> ResourceSettings:
    """Change settings by compare-and-set. They override what the code declares, until `reset_resource`."""
    for _ in range(TRIES):
        before, revision = await _read(client.store, "resource", check_resource(name))
        is_lock = name.startswith(LOCK_PREFIX)
        if is_lock and not revision:
            before = ResourceSettings(slots=1)  # nobody has used this lock yet
        changed = parse_settings(name, before, **changes)
        if is_lock and changed.slots not in (0, 1):
            raise BadInput(f"{name}: a lock has one slot; slots=0 grants it to nobody until it is reset")
        changed = msgspec.structs.replace(changed, set_by=client.by or "someone")
        value = msgspec.json.encode(changed)
        puts = [Put(kind="resource", name=name, value=value, expect=revision)]
        if (await client.store.put([*puts, *_without_breaker(before, changed, name)]))[0] is not None:
            return changed
    raise RecordChanged("resource", name)


async def reset_resource(client: Client, name: str) -> ResourceSettings:
    """Restore the settings that the code declares, and close the breaker."""
    declared, is_declared = await _read(client.store, DECLARED, name)
    value = msgspec.json.encode(declared) if is_declared else None
    await client.store.put([
        Put(kind="resource", name=name, value=value), Put(kind="gate", name=name, value=None),
        Put(kind="health", name=name, value=None),  # its retries are limited no longer
    ])  # fmt: skip
    return declared


async def _infos(store: Store, usages: Sequence[Usage], name: str | None = None) -> list[ResourceInfo]:
    """Build the info of one resource or of all, with the same number of reads for any number of resources."""
    kinds = [{record.name: record.value for record in await store.records(kind, name)} for kind in KINDS]
    retries = {spared: usage.waiting for usage in usages if (spared := spared_resource(usage.name)) is not None}
    own = {usage.name: usage for usage in usages if spared_resource(usage.name) is None}
    own |= {spared: Usage(name=spared) for spared in retries if spared not in own}
    return [
        _info(own[resource], retries.get(resource, 0), *(kind.get(resource) for kind in kinds))
        for resource in sorted(own)
    ]  # fmt: skip


def _info(
    usage: Usage, retries: int, settings_json: bytes | None, declared_json: bytes | None, gate_json: bytes | None
) -> ResourceInfo:
    settings = UNLIMITED if settings_json is None else msgspec.json.decode(settings_json, type=ResourceSettings)
    declared = None if declared_json is None else msgspec.json.decode(declared_json, type=ResourceSettings)
    gate = NO_GATE if gate_json is None else msgspec.json.decode(gate_json, type=Gate)
    return ResourceInfo(
        name=usage.name,
        slots=settings.slots,
        used=usage.used,
        waiting=usage.waiting,
        retries_waiting=retries,
        rate=rate_text(settings.every),
        burst=settings.burst,
        max_waiting=settings.max_waiting,
        breaker="none" if settings.breaker is None else gate.state,
        failures=gate.failures,
        opened=gate.opened,
        shut_until=usage.shut_until,
        set_by=settings.set_by,
        breaker_settings=settings.breaker,
        differs=declared is not None and msgspec.structs.replace(settings, set_by="") != declared,
    )


async def provide(client: Client, resources: Iterable[Resource]) -> None:
    """Write the settings that the code declares to the store. Settings that a person has changed stay."""
    for resource in resources:
        await _provide(client.store, resource)


async def _provide(store: Store, resource: Resource) -> None:
    """Write both records in one call: after a crash between two calls, the next process would find the declaration and
    never write the settings."""
    for _ in range(TRIES):
        declared, is_declared = await _read(store, DECLARED, resource.name)
        settings, revision = await _read(store, "resource", resource.name)
        if is_declared and revision and declared == resource.settings:
            return
        puts = [Put(kind=DECLARED, name=resource.name, value=msgspec.json.encode(resource.settings))]
        if not settings.set_by and (not revision or settings != resource.settings):
            value = msgspec.json.encode(resource.settings)
            puts.insert(0, Put(kind="resource", name=resource.name, value=value, expect=revision))
            puts += _without_breaker(settings, resource.settings, resource.name)
        if (await store.put(puts))[0] is not None:
            return


def _without_breaker(before: ResourceSettings, after: ResourceSettings, name: str) -> list[Put]:
    """Delete the gate together with its breaker: without a breaker, nothing would ever change the gate."""
    return [Put(kind="gate", name=name, value=None)] if before.breaker and not after.breaker else []


async def _read(store: Store, kind: str, name: str) -> tuple[ResourceSettings, int]:
    for record in await store.records(kind, name):
        return msgspec.json.decode(record.value, type=ResourceSettings), record.revision
    return UNLIMITED, 0

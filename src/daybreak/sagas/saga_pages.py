"""Sagas in pages, the newest first, without their contexts and jobs: what the server lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from datetime import UTC

from msgspec import Struct

from daybreak.client.client import Client
from daybreak.client.saga_record import SagaOutline, read_outlines
from daybreak.policy.sagas import PHASES, Phase


class SagaPage(Struct, frozen=True):
    """One page. `counts` are all sagas that match but for the wanted states, by state; a `cursor` of None means that
    this page is the last."""

    sagas: list[SagaOutline]
    counts: dict[Phase, int]
    cursor: str | None


async def page_of_sagas(
    client: Client,
    *,
    states: Collection[str] = (),
    name: str | None = None,
    limit: int,
    cursor: str | None = None,
    may_use: Callable[[str], bool] = lambda _: True,
) -> SagaPage:
    """The sagas in one of these states (none: any), of this name, all of whose jobs are in queues that may be used."""
    found = [
        one
        for one in await read_outlines(client.store)
        if name in (None, one.name) and all(may_use(queue) for queue in one.queues)
    ]
    counted = Counter(one.progress.phase for one in found)
    after = [
        one
        for one in found
        if (not states or one.progress.phase in states) and (cursor is None or _place(one) < cursor)
    ]
    page = after[:limit]
    counts = {phase: counted[phase] for phase in PHASES}
    return SagaPage(page, counts, _place(page[-1]) if len(after) > limit else None)


def _place(one: SagaOutline) -> str:
    """Orders sagas as they are listed. It is the cursor of the page that ends with this saga."""
    return f"{one.created_at.astimezone(UTC).isoformat(timespec='microseconds')} {one.id}"

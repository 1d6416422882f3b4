"""What a task that uploads reports declares: `@app.task(resource=wats_resource(), retry="upload")`."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from daybreak.core.model import Breaker, Retry
from daybreak.policy.resources import Resource

SLOTS: Final = 5
BREAKER: Final = Breaker(failures=5, successes=2, open_for=timedelta(seconds=60))

# A rejected report is permanent and fails at once, so many attempts cost nothing: they outlast a server that is away
# for a long weekend. The preset "upload" gives up after five.
WATS_RETRY: Final = Retry(
    strategy="exponential", attempts=200, delay=timedelta(minutes=5), cap=timedelta(minutes=30), unknown="fail"
)


def wats_resource(
    name: str = "wats", *, slots: int = SLOTS, rate: str | None = None, breaker: Breaker | bool = True
) -> Resource:
    """The resource of one WATS server: so many uploads at a time, over all workers. After five failures in a row the
    breaker keeps reports waiting for a minute, and then lets one try. Give each server a name of its own."""
    if breaker is True:
        breaker = BREAKER
    return Resource(name, slots=slots, rate=rate, breaker=breaker)

"""`/health/live` and `/health/ready`: for load balancers, and for people who want to know what is wrong."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from daybreak.api.oldest import oldest_queued
from daybreak.api.worker_info import read_workers
from daybreak.client.client import Client
from daybreak.core.errors import StoreError, StoreTooNew, StoreUnavailable
from daybreak.core.model import State
from daybreak.core.units import counted, moment
from daybreak.server.bodies.health import Health, HealthCheck, Readiness, Verdict
from daybreak.server.replies import Reply
from daybreak.server.routing import PUBLIC, Call, Routes
from daybreak.system import patience

routes = Routes("health", prefix="/health")
CHECK_TIMEOUT: Final = timedelta(seconds=3)
OLD: Final = timedelta(minutes=10)


@routes.get("/live", PUBLIC, answer=Health, summary="Whether the server process responds")
async def live(call: Call[None, None]) -> Any:  # noqa: ARG001
    """Always 200. It does not use the store, so an outage of the store does not restart every server."""
    return Health(status="pass")


@routes.get(
    "/ready", PUBLIC, answer=Readiness, others={503: "Not ready: the body says why"},
    summary="Whether requests can be served now",
)  # fmt: skip
async def ready(call: Call[None, None]) -> Any:
    """200 if the store can be used, otherwise 503. If jobs wait without a live worker, or a job has waited for more
    than 10 minutes, the status is `warn`: the server works, but a person should check."""
    checks = await _checks(call)
    statuses = {check.status for check in checks}
    status: Verdict = "pass"
    if "warn" in statuses:
        status = "warn"
    if "fail" in statuses:
        status = "fail"
    return Reply(Readiness(status=status, checks=checks), 503 if status == "fail" else 200)


async def _checks(call: Call[None, None]) -> list[HealthCheck]:
    try:
        # A load balancer does not wait as long as other callers.
        with patience.within(CHECK_TIMEOUT.total_seconds()):
            client = await call.client()
            now = moment(call.server.app.world.wall())
            live_workers = [worker for worker in await read_workers(client) if worker.is_live(now)]
            counts = await client.count()
            waiting = counts[State.QUEUED] + counts[State.BLOCKED]
            return [
                HealthCheck(name="store", status="pass", reason=f"the {client.store.traits.name} store answers"),
                HealthCheck(name="schema", status="pass", reason="the store has a schema that this program knows"),
                _workers(len(live_workers), waiting),
                await _oldest(client, call),
            ]
    except StoreTooNew:
        return [
            HealthCheck(name="store", status="pass", reason="the store answers"),
            HealthCheck(name="schema", status="fail", reason="a newer Daybreak wrote this store: update this server"),
        ]
    except StoreUnavailable:
        # The log has the address of the store and the error; this route is public and does not show them.
        return [HealthCheck(name="store", status="fail", reason="the store cannot be reached")]
    except StoreError as error:
        return [HealthCheck(name="store", status="fail", reason=f"the store refuses: {type(error).__name__}")]


def _workers(live: int, waiting: int) -> HealthCheck:
    if live:
        return HealthCheck(name="workers", status="pass", reason=f"{counted(live, 'live worker')}")
    if waiting:
        jobs = counted(waiting, "job waits", "jobs wait")
        return HealthCheck(name="workers", status="warn", reason=f"no live worker, and {jobs}")
    return HealthCheck(name="workers", status="pass", reason="no live worker, and no job waits")


async def _oldest(client: Client, call: Call[None, None]) -> HealthCheck:
    oldest = await oldest_queued(client)
    if oldest is None:
        return HealthCheck(name="oldest waiting job", status="pass", reason="no job is queued")
    waited = moment(call.server.app.world.wall()) - oldest
    status: Verdict = "warn" if waited > OLD else "pass"
    seconds = max(waited, timedelta()).total_seconds()
    return HealthCheck(
        name="oldest waiting job", status=status, reason=f"the oldest queued job has waited {seconds:.0f} s"
    )

"""What one scrape reads from the store: a handful of reads, however many jobs there are."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from msgspec import Struct

from daybreak.api.alerts import read_alerts
from daybreak.api.locks.lock_job import Waiter, all_waiters
from daybreak.api.oldest import oldest_per_queue
from daybreak.api.resources import ResourceInfo, all_resources
from daybreak.api.schedules.info import ScheduleInfo, all_schedules
from daybreak.api.worker_info import WorkerInfo, read_workers
from daybreak.client.client import Client
from daybreak.client.saga_record import read_outlines
from daybreak.client.trend_stats import read_cumulative
from daybreak.core.units import moment
from daybreak.policy.alerts import AlertState
from daybreak.policy.sagas import Phase
from daybreak.policy.trends import Sketches
from daybreak.store.protocol import Tally, Total


class Figures(Struct, frozen=True, kw_only=True):
    """The store at one time. `sagas` counts them by name and state."""

    now: datetime
    tallies: list[Tally]
    totals: list[Total]
    oldest: dict[str, datetime]
    resources: list[ResourceInfo]
    locks: list[Waiter]
    workers: list[WorkerInfo]
    schedules: list[ScheduleInfo] = []
    sagas: dict[tuple[str, Phase], int] = {}
    alerts: AlertState
    sketches: Sketches


async def read_figures(client: Client) -> Figures:
    return Figures(
        now=moment(client.wall()),
        tallies=await client.tallies(),
        totals=await client.store.totals(),
        oldest=await oldest_per_queue(client),
        resources=await all_resources(client),
        locks=await all_waiters(client),
        workers=await read_workers(client),
        schedules=await all_schedules(client),
        sagas=Counter((one.name, one.progress.phase) for one in await read_outlines(client.store)),
        alerts=await read_alerts(client),
        sketches=await read_cumulative(client.store),
    )

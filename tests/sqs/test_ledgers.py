"""The ledger in PostgreSQL, as it is meant: the dispatcher reaches the database, and the workers reach only SQS."""

from __future__ import annotations

import secrets

from server_stores import place_on
from sqs_stage import open_stage, until
from sqs_tasks import add, echo

from daybreak import values
from daybreak.core.model import Done
from daybreak.sqs.deliveries import KIND


async def test_a_ledger_in_postgresql_accepts_one_outcome_of_each_job(endpoint, tmp_path):
    with place_on("postgres") as url:
        async with open_stage(endpoint, f"t{secrets.token_hex(4)}", tmp_path, url) as stage:
            lost = await echo.asubmit("x")
            await stage.dispatcher()
            dead = await stage.player(lease=1)
            lease = await dead.take_one()
            store = await stage.store()
            await until(lambda: store.records(KIND, lost.id), "the ledger has heard that the job began")
            await stage.worker(processes=3)
            jobs = [await add.asubmit(n, 1) for n in range(10)]
            assert [values.decode((await stage.ended(job)).result) for job in jobs] == list(range(1, 11))
            found = await stage.ended(lost)
            assert (values.decode(found.result), found.attempt, found.lost) == ("x", 2, 1)
            await dead.end(lease, Done(values.encode("late", "result")))
            assert "fence" in (await stage.asides())[0].reason
            assert values.decode((await stage.job(lost)).result) == "x"

            async def are_gone():
                return not await store.records(KIND)

            await until(are_gone, "the records of deliveries went with their jobs")

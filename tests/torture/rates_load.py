"""The app of test_rates.py: async jobs that need a start of one rate, some of which block the loop they run on."""

from __future__ import annotations

import time

from worker_processes import write_line

from daybreak import Context, Daybreak, Resource

app = Daybreak()
JOBS = 84
# One start more than there are jobs, and no further one while the test runs: if two are lost, a job cannot run. The one
# is for what a start that comes back may lack: the time from it to the latest start, here some seconds of a day.
metered = Resource("metered", rate="1/d", burst=JOBS + 1)


@app.task
async def short(n: int) -> int:
    return n


@app.task(resource=metered)
async def block(ctx: Context, seconds: float) -> int:
    write_line(job=ctx.job, fence=ctx.fence, word="began")
    time.sleep(seconds)  # noqa: ASYNC251 - a job that keeps its loop busy
    return ctx.fence

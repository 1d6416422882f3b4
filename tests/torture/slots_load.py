"""The app of test_shared_slots.py: jobs that need one to three slots of one resource, and say when they had them."""

from __future__ import annotations

import time

from worker_processes import write_line

from daybreak import Context, Daybreak, Resource, Retry

app = Daybreak()
SLOTS = 3
shared = Resource("shared", slots=SLOTS)


@app.task(resource=lambda slots, **_: shared.take(slots), retry=Retry(attempts=10_000), deaths=10_000)
def hold(ctx: Context, slots: int, seconds: float) -> int:
    write_line(job=ctx.job, fence=ctx.fence, slots=slots, word="began")
    time.sleep(seconds)
    write_line(job=ctx.job, fence=ctx.fence, slots=slots, word="did")
    return ctx.fence

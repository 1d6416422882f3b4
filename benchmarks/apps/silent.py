"""An app whose task does nothing at all."""

from __future__ import annotations

from daybreak import Daybreak

app = Daybreak(name="silent")


@app.task
async def noop(n: int) -> int:
    return n

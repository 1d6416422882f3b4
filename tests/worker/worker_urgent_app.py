"""Another app on the same store, with a hundred thousand jobs that are more urgent."""

from __future__ import annotations

from daybreak import Daybreak

app = Daybreak()


@app.task
def foreign(n: int) -> int:
    return n

"""Another app on the same store, whose jobs stand in front by the hundred thousand."""

from __future__ import annotations

from daybreak import Daybreak

app = Daybreak()


@app.task
def foreign(n: int) -> int:
    return n

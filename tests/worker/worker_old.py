"""The app as deployed last week."""

from __future__ import annotations

from daybreak import Daybreak

app = Daybreak()


@app.task
def resize(width: int) -> str:
    return f"old {width}"


@app.task
def only_then() -> str:
    return "old"


@app.task(name="rename_me")
def before_renaming(n: int) -> str:
    return f"old {n}"

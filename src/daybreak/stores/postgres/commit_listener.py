"""What a connection tells the store about its commits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class CommitListener(Protocol):
    """Learns what a commit has changed."""

    def notice_in_commit(self) -> tuple[str, str] | None:
        """The NOTIFY channel and the sender's name, if the commit itself should notify; None: notify after the
        commit."""
        ...

    def on_commit(self, topics: set[str], notified: Iterable[str] = (), *, deleted_rows: int = 0) -> None:
        """The commit changed `topics` and itself notified other processes of those in `notified`. `deleted_rows` counts
        the rows that it deleted from the tables `ready` and `delayed`."""
        ...

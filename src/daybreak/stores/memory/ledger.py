"""What holds of jobs: every transition, written out plainly. Other stores repeat this in their own tongue."""

from __future__ import annotations

from daybreak.stores.memory.amend import Amending
from daybreak.stores.memory.book import Key, Now, check
from daybreak.stores.memory.lease import Leasing


class Ledger(Leasing, Amending):
    """All of it: what is kept (book), what is let in (accept), what runs (lease), and what people change (amend)."""

    __slots__ = ()


__all__ = ["Key", "Ledger", "Now", "check"]

"""Every transition of a job, written out plainly. The other stores do the same in SQL or Lua."""

from __future__ import annotations

from daybreak.stores.memory.amend import Amending
from daybreak.stores.memory.book import Key, Now, check
from daybreak.stores.memory.lease import Leasing


class Ledger(Leasing, Amending):
    """All parts together: book, accept, resource_queue, lease and amend."""

    __slots__ = ()


__all__ = ["Key", "Ledger", "Now", "check"]

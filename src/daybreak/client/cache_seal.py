"""The key with which clients seal secrets in the keys of cached results. Made once per store, and shown nowhere."""

from __future__ import annotations

import secrets
from typing import Final

from daybreak.core.errors import RecordChanged
from daybreak.core.model import Put
from daybreak.store.protocol import Store

KIND: Final = "cache seal"
_NAME: Final = "1"
_BYTES: Final = 32


async def read_seal(store: Store) -> bytes:
    """The key of the store. The first call of all makes it."""
    for _ in range(3):
        for record in await store.records(KIND, _NAME):
            return record.value
        new = secrets.token_bytes(_BYTES)
        [written] = await store.put([Put(kind=KIND, name=_NAME, value=new, expect=0)])
        if written is not None:
            return new
    raise RecordChanged(KIND, _NAME)

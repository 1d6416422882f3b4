from __future__ import annotations

import pytest
from ticking import open_store


@pytest.fixture(params=["memory", "sqlite", "directory", "postgres", "redis"])
async def store(request, tmp_path):
    """A store of each kind. The clock of a store on a server is its own."""
    async with open_store(request.param, tmp_path) as store:
        yield store

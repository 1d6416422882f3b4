"""The same contract on Valkey, where it is installed."""

from __future__ import annotations

import shutil

import pytest
from redis_servers import clear, private

from daybreak.stores.redis import RedisStore
from daybreak.testing import StoreContract

pytestmark = pytest.mark.skipif(shutil.which("valkey-server") is None, reason="no valkey-server on this machine")


@pytest.fixture(scope="module")
def valkey(tmp_path_factory):
    with private(tmp_path_factory.mktemp("valkey"), "--appendonly", "no", program="valkey-server") as server:
        yield server


class TestValkey(StoreContract):
    @pytest.fixture
    async def store(self, valkey):
        async with RedisStore(valkey.url.replace("redis://", "valkey://")) as store:
            yield store
        clear(valkey.url, "daybreak")

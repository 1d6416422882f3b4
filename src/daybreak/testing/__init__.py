"""For those who test: the contract that every store must keep, and a machine that runs one store beside another.

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self, clock):
            async with MyStore(world=clock) as store:
                yield store
"""

import pytest

pytest.register_assert_rewrite("daybreak.testing.contract")

from daybreak.testing.clock import HandClock  # noqa: E402 - asserts are rewritten only in what is imported later
from daybreak.testing.contract import StoreContract  # noqa: E402

__all__ = ["HandClock", "StoreContract"]

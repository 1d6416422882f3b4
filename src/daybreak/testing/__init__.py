"""For those who test: the contract that every store must keep, and a machine that runs one store beside another.

A store proves itself by a class `TestMyStore(StoreContract)` with a fixture `store` that yields it, open and empty.
"""

import pytest

pytest.register_assert_rewrite("daybreak.testing.contract", "daybreak.testing.beside")

from daybreak.testing.clock import HandClock  # noqa: E402 - asserts are rewritten only in what is imported later
from daybreak.testing.contract import StoreContract  # noqa: E402

__all__ = ["HandClock", "StoreContract"]

"""A broker of each kind."""

from __future__ import annotations

import pytest
from brokers import KINDS, broker_of


@pytest.fixture(scope="module", params=KINDS)
def broker(request):
    with broker_of(request.param) as broker:
        yield broker

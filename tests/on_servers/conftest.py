from __future__ import annotations

import pytest
from server_stores import place_on


@pytest.fixture(params=["postgres", "redis"])
def kind(request):
    return request.param


@pytest.fixture
def url(kind):
    with place_on(kind) as url:
        yield url

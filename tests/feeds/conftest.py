"""A watched folder, on a clock that the test moves."""

from __future__ import annotations

import pytest
from drop_rig import DropRig


@pytest.fixture
async def rig(tmp_path):
    async with DropRig(tmp_path) as rig:
        yield rig


@pytest.fixture
async def make_rig(tmp_path):
    """Makes a rig with other options of the watch."""
    made = []

    async def make(**options) -> DropRig:
        rig = DropRig(tmp_path, **options)
        made.append(rig)
        return await rig.__aenter__()

    yield make
    for rig in made:
        await rig.__aexit__()

"""A world in which time passes only when a test says so, and a store on it."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings

from daybreak.client.client import Client
from daybreak.core.units import micros, span
from daybreak.stores.memory import MemoryStore

settings.register_profile("unit", deadline=None, max_examples=100)
settings.load_profile("unit")


class FakeWorld:
    """Sleeping moves both clocks and lets others run; nobody waits for real."""

    def __init__(self) -> None:
        self.now = micros(datetime(2026, 1, 31, 18, 0, tzinfo=UTC))
        self.chance = random.Random(7)
        self.slept: list[timedelta] = []

    def wall(self) -> int:
        return self.now

    def steady(self) -> int:
        return self.now - 1_000_000_000

    def pass_time(self, delay: timedelta) -> None:
        self.now += span(delay)

    async def sleep(self, delay: timedelta) -> None:
        self.slept.append(delay)
        self.pass_time(delay)
        await asyncio.sleep(0)


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld()


@pytest.fixture
def store(world: FakeWorld) -> MemoryStore:
    return MemoryStore(world)


@pytest.fixture
def client(store: MemoryStore, world: FakeWorld) -> Client:
    return Client(store, by="ann", world=world)

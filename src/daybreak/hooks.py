"""Functions that are called when something happens to a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from daybreak.client import Client
from daybreak.model import JobSpec, Lease
from daybreak.worker.source import Settled
from daybreak.world import World

F = TypeVar("F", bound=Callable[..., Any])


class Hooks:
    def __init__(self, world: World) -> None:
        self._world = world

    def on(self, *kinds: str, durable: bool = False, name: str | None = None) -> Callable[[F], F]:
        raise NotImplementedError

    def submitted(self, spec: JobSpec, job: str) -> None: ...

    def began(self, lease: Lease) -> None: ...

    def settled(self, settled: Settled) -> None: ...

    @property
    def is_durable(self) -> bool:
        return False

    async def follow(self, client: Client) -> None:
        """Call the durable hooks, for ever."""

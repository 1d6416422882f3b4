"""The client of PLECS, for tasks: every call has a limit, and every error says whether a retry helps."""

from __future__ import annotations

import asyncio
import time
import xmlrpc.client
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from daybreak.adapters.plecs.errors import PlecsError, error_of
from daybreak.adapters.plecs.model_copies import copy_by_content, name_by_content
from daybreak.adapters.plecs.options import option_struct
from daybreak.adapters.plecs.results import Waveforms, parse_batch, parse_waveforms
from daybreak.adapters.plecs.xml_rpc import Address, Limits, call
from daybreak.core.errors import BadInput
from daybreak.core.model import Breaker, Retry
from daybreak.core.units import duration
from daybreak.policy.resources import Resource
from daybreak.tasks.cache import Cache

ADDRESS: Final = "http://127.0.0.1:1080/RPC2"
PROBE_LIMIT: Final = timedelta(seconds=5)
ENGINE_FOR: Final = timedelta(minutes=10)  # the version of a PLECS changes only while it is closed
MAX_ANSWER: Final = 256 * 1024 * 1024

# A model error is permanent and fails at once, so many attempts cost nothing: they outlast a PLECS that is away for an
# hour and a half.
PLECS_RETRY: Final = Retry(attempts=100, delay=timedelta(seconds=1), cap=timedelta(minutes=1), unknown="fail")


def plecs_resource(address: str = ADDRESS, *, breaker: Breaker | bool = True) -> Resource:
    """The resource to declare on tasks that use the PLECS at this address: one slot, because PLECS runs one command at
    a time and refuses a second. While PLECS is away, the breaker keeps jobs waiting instead of failing."""
    found = parse_address(address)
    if breaker is True:
        breaker = Breaker(failures=5, open_for=timedelta(seconds=5))
    return Resource(f"plecs {found}", slots=1, breaker=breaker)


def plecs_cache(plecs: Plecs, **settings: Any) -> Cache:
    """The cache to declare on tasks that use this PLECS: its version counts. While that is not known, because PLECS is
    away or busy, jobs run and their results are not kept. `settings` are further ones of `Cache`."""
    environment = settings.pop("environment", ())
    more = environment if isinstance(environment, list | tuple) else (environment,)
    return Cache(environment=(plecs.engine, *more), **settings)


class Plecs:
    """The PLECS at an address. Each call has a connection of its own, so threads and tasks can share this object.

    `connect_timeout` and `timeout` bound every call, `max_answer` is the size of an answer in bytes. Every method has
    an async twin with an `a` before its name."""

    def __init__(
        self,
        address: str = ADDRESS,
        *,
        connect_timeout: timedelta | str = "5s",
        timeout: timedelta | str = "10m",
        max_answer: int = MAX_ANSWER,
    ) -> None:
        self.address = parse_address(address)
        self.connect_timeout = _limit(connect_timeout, "connect_timeout")
        self.timeout = _limit(timeout, "timeout")
        self.max_answer = max_answer
        self._engine: tuple[float, dict[str, str]] | None = None

    def __repr__(self) -> str:
        return f"<PLECS at {self.address}>"

    # -- the server ----------------------------------------------------------------------------------------------------

    def is_available(self) -> bool:
        """Whether PLECS answers at the address now."""
        try:
            self._call("system.listMethods", limit=min(PROBE_LIMIT, self.timeout))
        except PlecsError:
            return False
        return True

    def statistics(self) -> dict[str, Any]:
        """Version and build of PLECS, and the models that are loaded."""
        found = self._call("plecs.statistics")
        return found if isinstance(found, dict) else {}

    def engine(self) -> dict[str, str] | None:
        """The version of PLECS, which decides results; None if it does not answer now. Asked at most every 10 min."""
        if self._engine is not None and time.monotonic() < self._engine[0]:
            return self._engine[1]
        try:
            found = self._call("plecs.statistics", limit=min(PROBE_LIMIT, self.timeout))
        except PlecsError:
            return None
        version = found.get("version") if isinstance(found, dict) else None
        if not version:
            return None
        engine = {"PLECS": f"{version} {found.get('build', '')}".strip()}
        self._engine = (time.monotonic() + ENGINE_FOR.total_seconds(), engine)
        return engine

    # -- models --------------------------------------------------------------------------------------------------------

    def load(self, path: str | Path) -> str:
        """Load a model; answers its name, which is the file's name without its suffix. PLECS reads the file itself, so
        the path must be valid on its machine."""
        model = Path(path).absolute()
        self._call("plecs.load", str(model))
        return model.stem

    def load_by_content(self, path: str | Path, folder: str | Path | None = None) -> str:
        """Load a copy of a model under a name that has the digest of its content; answers that name.

        Two models of one file name are never confused, and loading the same content again does nothing. The copies are
        in `folder`, by default one of this user for temporary files."""
        name = name_by_content(path, Path(path).read_bytes())
        if name in _model_names(self.statistics()):
            return name
        return self.load(copy_by_content(path, folder))

    def close(self, model: str) -> None:
        """Close a model. PLECS does not ask whether to save it."""
        self._call("plecs.close", model)

    def get(self, path: str, parameter: str = "") -> Any:
        """A parameter of a component, such as `get("buck/V_dc", "V")`; without one, all of them."""
        return self._call("plecs.get", path, *([parameter] if parameter else []))

    def set(self, path: str, parameter: str, value: str) -> None:
        """Set a parameter of a component in the loaded model, as text."""
        self._call("plecs.set", path, parameter, str(value))

    # -- simulations ---------------------------------------------------------------------------------------------------

    def simulate(
        self,
        model: str,
        variables: Mapping[str, Any] | None = None,
        *,
        solver: Mapping[str, Any] | None = None,
        timeout: timedelta | str | None = None,
    ) -> Waveforms:
        """Simulate a loaded model once, with these model variables and solver options."""
        limit = self._limit_of(timeout)
        options = option_struct(variables, solver or {}, limit)
        return parse_waveforms(self._call("plecs.simulate", model, options, limit=limit))

    def simulate_batch(
        self,
        model: str,
        points: Sequence[Mapping[str, Any]],
        *,
        solver: Mapping[str, Any] | None = None,
        timeout: timedelta | str | None = None,
    ) -> list[Waveforms | PlecsError]:
        """Simulate a loaded model once for each point, in one call, which PLECS spreads over its cores. Answers in the
        order asked; a point that failed is answered by its error, which is not raised."""
        if isinstance(points, Mapping | str):
            raise BadInput(f"simulate_batch was given one {type(points).__name__}: give a list of variables")
        if not points:
            return []
        limit = self._limit_of(timeout)
        options = [option_struct(variables, solver or {}, limit) for variables in points]
        return parse_batch(self._call("plecs.simulate", model, options, limit=limit), len(options))

    def _limit_of(self, timeout: timedelta | str | None) -> timedelta:
        return self.timeout if timeout is None else _limit(timeout, "timeout")

    def _call(self, method: str, *params: Any, limit: timedelta | None = None) -> Any:
        total = (limit or self.timeout).total_seconds()
        limits = Limits(self.connect_timeout.total_seconds(), total, self.max_answer)
        try:
            return call(self.address, method, params, limits)
        except xmlrpc.client.Fault as fault:
            raise error_of(str(fault.faultString)) from None

    # -- async ---------------------------------------------------------------------------------------------------------

    async def ais_available(self) -> bool:
        return await asyncio.to_thread(self.is_available)

    async def astatistics(self) -> dict[str, Any]:
        return await asyncio.to_thread(self.statistics)

    async def aengine(self) -> dict[str, str] | None:
        return await asyncio.to_thread(self.engine)

    async def aload(self, path: str | Path) -> str:
        return await asyncio.to_thread(self.load, path)

    async def aload_by_content(self, path: str | Path, folder: str | Path | None = None) -> str:
        return await asyncio.to_thread(self.load_by_content, path, folder)

    async def aclose(self, model: str) -> None:
        await asyncio.to_thread(self.close, model)

    async def aget(self, path: str, parameter: str = "") -> Any:
        return await asyncio.to_thread(self.get, path, parameter)

    async def aset(self, path: str, parameter: str, value: str) -> None:
        await asyncio.to_thread(self.set, path, parameter, value)

    async def asimulate(
        self,
        model: str,
        variables: Mapping[str, Any] | None = None,
        *,
        solver: Mapping[str, Any] | None = None,
        timeout: timedelta | str | None = None,  # noqa: ASYNC109 - as of the blocking twin
    ) -> Waveforms:
        return await asyncio.to_thread(self.simulate, model, variables, solver=solver, timeout=timeout)

    async def asimulate_batch(
        self,
        model: str,
        points: Sequence[Mapping[str, Any]],
        *,
        solver: Mapping[str, Any] | None = None,
        timeout: timedelta | str | None = None,  # noqa: ASYNC109
    ) -> list[Waveforms | PlecsError]:
        return await asyncio.to_thread(self.simulate_batch, model, points, solver=solver, timeout=timeout)


def parse_address(address: str) -> Address:
    """Host, port and path of an address such as http://127.0.0.1:1080/RPC2."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except (ValueError, AttributeError, TypeError):
        host = port = None
    if not host or parts.scheme != "http" or parts.query or parts.username:
        raise BadInput(f"PLECS address {address!r:.80}: write http://HOST:PORT/RPC2, such as {ADDRESS}")
    return Address(host, 1080 if port is None else port, parts.path or "/RPC2")


def _limit(value: timedelta | str, what: str) -> timedelta:
    limit = duration(value, what)
    if not limit:
        raise BadInput(f"{what}: a call must have time; write '10m'")
    return limit


def _model_names(statistics: Mapping[str, Any]) -> list[str]:
    models = statistics.get("models", [])
    if not isinstance(models, list):
        return []
    return [str(model.get("name", "")) if isinstance(model, dict) else str(model) for model in models]

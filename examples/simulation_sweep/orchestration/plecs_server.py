"""The simulator under the names of PyPLECS."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from daybreak import BadInput
from daybreak.adapters.plecs import Plecs, PlecsError, Waveforms


class PlecsServer:
    """One PLECS and the model that it simulates. It is not started from here: start it with `PLECS -server 1080`."""

    def __init__(
        self,
        model_file: str | None = None,
        *,
        host: str = "127.0.0.1",
        port: int | str = 1080,
        load: bool = True,
        timeout: str = "10m",
    ) -> None:
        self.plecs = Plecs(f"http://{host}:{port}/RPC2", timeout=timeout)
        self.model_file = model_file
        self._model: str | None = None
        if model_file is not None and load:
            self.use_model(model_file)

    def use_model(self, model_file: str | Path) -> None:
        """Simulate this model from now on. A PLECS that was restarted gets it again, because this is called before each
        batch."""
        self.model_file = str(model_file)
        self._model = self.plecs.load_by_content(model_file)

    def simulate(self, parameters: Mapping[str, Any] | None = None, **solver: Any) -> Waveforms:
        """One simulation; an error of the model is raised."""
        return self.plecs.simulate(self._loaded(), parameters, solver=solver)

    def simulate_batch(
        self, parameter_list: Sequence[Mapping[str, Any]], **solver: Any
    ) -> list[Waveforms | PlecsError]:
        """One call with a list of option structs, which PLECS spreads over its cores; answered in order, a failed point
        by its error."""
        return self.plecs.simulate_batch(self._loaded(), parameter_list, solver=solver)

    def set_value(self, reference: str, parameter: str, value: object) -> None:
        self.plecs.set(f"{self._loaded()}/{reference}", parameter, str(value))

    def engine(self) -> str | None:
        """The version of PLECS; None if it does not answer now."""
        return (self.plecs.engine() or {}).get("PLECS")

    def is_available(self) -> bool:
        return self.plecs.is_available()

    def health_check(self) -> dict[str, Any]:
        available = self.is_available()
        version = self.plecs.statistics().get("version") if available else None
        return {"available": available, "address": str(self.plecs.address), "version": version}

    def close(self) -> None:
        """Close the model, if PLECS still knows it."""
        if self._model is not None:
            with contextlib.suppress(PlecsError):
                self.plecs.close(self._model)
            self._model = None

    def _loaded(self) -> str:
        if self._model is None:
            raise BadInput("no model is loaded: PlecsServer('buck.plecs'), or server.use_model('buck.plecs')")
        return self._model

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

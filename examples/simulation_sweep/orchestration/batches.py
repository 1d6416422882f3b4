"""Tasks of one model in one call of PLECS."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol

from daybreak.adapters.plecs import BadAnswer, PlecsError, Waveforms
from daybreak.adapters.plecs.results import parse_batch
from orchestration.tasks import SimulationResult, SimulationTask

logger = logging.getLogger(__name__)

NO_BATCHES: Final = {"batches_executed": 0, "total_simulations": 0, "total_runtime": 0.0}


class SimulationServer(Protocol):
    """What runs a batch. One that has `use_model` gets the model's path before each batch."""

    def simulate_batch(self, parameter_list: list[dict[str, Any]], /) -> Sequence[Any]: ...


class BatchSimulationExecutor:
    """Executes batches by the parallel API of PLECS."""

    def __init__(self, plecs_server: SimulationServer, batch_size: int = 4) -> None:
        self.server = plecs_server
        self.batch_size = batch_size
        self.stats = dict(NO_BATCHES)

    def execute_batch(self, tasks: Sequence[SimulationTask]) -> list[SimulationResult]:
        """One call for each model among the tasks, and results in the order of the tasks. A task that failed alone has
        a result without success; what is raised concerns the whole call."""
        results: dict[int, SimulationResult] = {}
        groups: dict[tuple[str, float | None], list[int]] = {}
        for number, task in enumerate(tasks):
            seconds = getattr(task.request, "simulation_time", None)
            groups.setdefault((task.model, seconds), []).append(number)
        for (model, seconds), numbers in groups.items():
            found = self._execute(model, seconds, [tasks[number] for number in numbers])
            results.update(zip(numbers, found, strict=True))
        return [results[number] for number in range(len(tasks))]

    def _execute(self, model: str, seconds: float | None, tasks: list[SimulationTask]) -> list[SimulationResult]:
        started = time.monotonic()
        if hasattr(self.server, "use_model"):
            self.server.use_model(model)
        parameters = [dict(task.request.parameters) for task in tasks]
        if seconds is None:
            answers = self.server.simulate_batch(parameters)
        else:
            answers = self.server.simulate_batch(parameters, TimeSpan=seconds)
        runtime = time.monotonic() - started
        self.stats["batches_executed"] += 1
        self.stats["total_simulations"] += len(tasks)
        self.stats["total_runtime"] += runtime
        logger.info("batch of %d simulations: %.2f s, %.2f s each", len(tasks), runtime, runtime / len(tasks))
        found = _checked(answers, len(tasks))
        return [_result(task, one, runtime / len(tasks)) for task, one in zip(tasks, found, strict=True)]


def _checked(answers: Sequence[Any], count: int) -> list[Waveforms | PlecsError]:
    """Answers as the adapter gives them, or as PLECS itself does."""
    if len(answers) != count:
        raise BadAnswer(f"a batch of {count} simulations was answered with {len(answers)} results")
    return [one if isinstance(one, Waveforms | PlecsError) else parse_batch([one], 1)[0] for one in answers]


def _result(task: SimulationTask, found: Waveforms | PlecsError, seconds: float) -> SimulationResult:
    if isinstance(found, PlecsError):
        text = str(found)
        return SimulationResult(task.task_id, False, error_message=text, execution_time=seconds, error=found)
    names = getattr(task.request, "output_variables", ())
    signals = {
        names[number] if number < len(names) else f"signal_{number}": signal
        for number, signal in enumerate(found.signals)
    }
    data = {"Time": found.time, **signals}
    metadata = dict(getattr(task.request, "metadata", {}))
    return SimulationResult(task.task_id, True, data, metadata, execution_time=seconds)

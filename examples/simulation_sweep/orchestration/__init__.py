"""Orchestration of PLECS simulations, in the words of PyPLECS and its article, over Daybreak's own.

priorities    four levels, and their numbers     tasks      a request, a task, its result
orchestrator  submit, take, run, wait, cancel    batches    tasks of one model in one call
selection     which tasks are next               callbacks  who is told what
dispatcher    runs batches in the background     cache      results that are known
plecs_server  the simulator                      routes     GET /api/tasks/{task_id}

Nothing here queues, times or counts tasks: that is done by the store, for all processes together.
"""

from orchestration.batches import BatchSimulationExecutor
from orchestration.cache import SimulationCache
from orchestration.orchestrator import SimulationOrchestrator
from orchestration.plecs_server import PlecsServer
from orchestration.priorities import TaskPriority, priority_of, task_priority
from orchestration.tasks import SimulationRequest, SimulationResult, SimulationTask, TaskStatus

__all__ = [
    "BatchSimulationExecutor",
    "PlecsServer",
    "SimulationCache",
    "SimulationOrchestrator",
    "SimulationRequest",
    "SimulationResult",
    "SimulationTask",
    "TaskPriority",
    "TaskStatus",
    "priority_of",
    "task_priority",
]

"""A saga as JSON data."""

from __future__ import annotations

from typing import Any

from daybreak.api.views.job import plain_value
from daybreak.api.views.scalars import instant
from daybreak.client.saga_record import SagaOutline
from daybreak.core.model import State
from daybreak.sagas.saga_info import SagaInfo, StepInfo, resume_command


def saga_view(info: SagaInfo) -> dict[str, Any]:
    """All fields of a saga. `context_size` is in bytes."""
    return {
        "id": info.id,
        "name": info.name,
        "state": info.state,
        "error": info.error,
        "cancelled_by": info.cancelled_by,
        "resume_command": info.resume_command,
        "by": info.by,
        "created_at": instant(info.created_at),
        "changed_at": instant(info.changed_at),
        "context": plain_value(info.encoded_context),
        "context_size": len(info.encoded_context),
        "steps": [_step_view(step) for step in info.steps],
    }


def _step_view(step: StepInfo) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in step.__struct_fields__:
        value = getattr(step, name)
        if name.endswith("_at"):
            value = instant(value)
        found[name] = value.value if isinstance(value, State) else value
    return found


def saga_row(one: SagaOutline) -> dict[str, Any]:
    """A saga of a list: `steps` is how many it has, `completed` how many of them have completed and are not undone."""
    progress = one.progress
    current = None if progress.current is None else progress.steps[progress.current].name
    return {
        "id": one.id,
        "name": one.name,
        "state": progress.phase,
        "step": current,
        "steps": len(progress.steps),
        "completed": sum(step.state == "completed" for step in progress.steps),
        "error": progress.error,
        "cancelled_by": progress.cancelled_by,
        "resume_command": resume_command(one.id, progress.phase),
        "by": one.by,
        "created_at": instant(one.created_at),
        "changed_at": instant(one.changed_at),
    }

"""The current stack of a running job as JSON data and as text."""

from __future__ import annotations

from typing import Any

from daybreak.api.views.scalars import instant
from daybreak.client.job_stacks import JobStack
from daybreak.core.text import safe
from daybreak.core.units import bytes_text


def stack_view(stack: JobStack) -> dict[str, Any]:
    """Where a job is, and the process that runs it."""
    return {
        "job": stack.job,
        "attempt": stack.attempt,
        "fence": stack.fence,
        "stack": stack.text,
        "note": stack.note,
        "worker": stack.worker,
        "host": stack.host,
        "pid": stack.pid,
        "memory": stack.memory,
        "shared": stack.shared,
        "processes": [
            {"pid": process.pid, "command": process.command, "memory": process.memory} for process in stack.processes
        ],
        "taken_at": instant(stack.taken_at),
        "text": stack_text(stack),
    }


def stack_text(stack: JobStack) -> str:
    """The stack for people: where the job runs, the processes that it started, then its calls, the innermost last.
    Control characters are shown as escapes."""
    lines = []
    if stack.pid is not None:
        lines.append(_place(stack))
    lines += [
        f"started process {process.pid}: {safe(process.command)} ({memory_text(process.memory)})"
        for process in stack.processes
    ]
    if stack.note:
        lines.append(safe(stack.note))
    if stack.text:
        lines.append("Stack (most recent call last):\n" + safe(stack.text, lines=True).rstrip("\n"))
    return "\n".join(lines)


def _place(stack: JobStack) -> str:
    shared = ", shared with other jobs" if stack.shared else ""
    return f"process {stack.pid} on {safe(stack.host)}: memory {memory_text(stack.memory)}{shared}"


def memory_text(memory: int | None) -> str:
    """A size for people; a dash would be read as nothing, so what is unknown is called so."""
    return "unknown" if memory is None else bytes_text(memory)

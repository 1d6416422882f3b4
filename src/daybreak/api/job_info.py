"""What is known of a job, with its arguments and its result as values rather than bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from daybreak import values
from daybreak.core.errors import DaybreakError
from daybreak.core.model import Failure, Job
from daybreak.tasks.registry import Definition, Program


class JobInfo(Job, frozen=True, gc=True, kw_only=True):
    """A job at one instant, as people read it: all fields of `Job`, with `args` and `result` as values.

    They are read by the annotations of the task where this app has it, and as plain values elsewhere, or where what is
    stored does not fit the annotations. Secrets are `Secret` objects, which print as ***."""

    args: dict[str, Any]
    result: Any = None

    @property
    def task(self) -> str:
        return self.spec.task

    @property
    def version(self) -> int:
        return self.spec.version

    @property
    def queue(self) -> str:
        return self.spec.queue

    @property
    def by(self) -> str:
        """Who submitted it."""
        return self.spec.by

    @property
    def key(self) -> str | None:
        return self.spec.key

    @property
    def run(self) -> str | None:
        return self.spec.run

    @property
    def owner(self) -> str | None:
        return self.spec.owner

    @property
    def tags(self) -> tuple[str, ...]:
        return self.spec.tags

    @property
    def meta(self) -> dict[str, str]:
        return self.spec.meta

    @property
    def max_attempts(self) -> int:
        return self.spec.options.retry.attempts

    @property
    def error(self) -> Failure | None:
        """What went wrong in its latest attempt: `kind`, `message`, `traceback`, `attempt`; as text, kind and message.
        Another name for `failure`, the one that `--json` uses."""
        return self.failure


def info_of(job: Job, program: Program) -> JobInfo:
    """Never fails, whatever is stored: a job that cannot be read must still be seen."""
    spec = job.spec
    task = program[spec.task] if spec.task in program else None  # noqa: SIM401 - a Program is no dict
    said = {name: getattr(job, name) for name in Job.__struct_fields__}
    said["result"] = None if job.result is None else _result(job.result, task)
    return JobInfo(**said, args=_args(spec.args, task if task is not None and task.version == spec.version else None))


def _args(data: bytes, task: Definition | None) -> dict[str, Any]:
    found = _read(data, None if task is None else task.arguments.decode_named)
    return found if isinstance(found, dict) else {"": found}


def _result(data: bytes, task: Definition | None) -> Any:
    return _read(data, None if task is None else task.result.decode)


def _read(data: bytes, by_annotations: Callable[[bytes], Any] | None) -> Any:
    for read in (by_annotations, values.decode):
        if read is not None:
            try:
                return read(data)
            except (DaybreakError, msgspec.DecodeError, ValueError, TypeError, KeyError, NameError, RecursionError):
                continue
    return values.shown(data)

"""A job with its arguments and its result as values instead of bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from daybreak import values
from daybreak.api.app_files import Decode, decode_plain
from daybreak.core.errors import DaybreakError
from daybreak.core.metadata import decode_meta
from daybreak.core.model import Failure, Job
from daybreak.tasks.registry import Definition, Program


class JobInfo(Job, frozen=True, gc=True, kw_only=True):
    """A job at one instant: all fields of `Job`, with `args` and `result` as values.

    They are decoded by the task's annotations if this app has the task and the stored values fit them, otherwise as
    plain values. Secrets are `Secret` objects, which print as ***."""

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
    def meta(self) -> dict[str, Any]:
        return decode_meta(self.spec.meta)

    @property
    def max_attempts(self) -> int:
        return self.spec.options.retry.attempts

    @property
    def error(self) -> Failure | None:
        """The error of its latest attempt: `kind`, `message`, `traceback`, `attempt`; as text, kind and message. An
        alias of `failure`, and the name that `--json` uses."""
        return self.failure


def info_of(job: Job, program: Program, decode: Decode = decode_plain) -> JobInfo:
    """Decode the job's values. Never fails: a job whose values cannot be decoded must still be visible. `decode` finds
    the contents of files."""
    spec = job.spec
    task = program[spec.task] if spec.task in program else None  # noqa: SIM401 - a Program is no dict
    fields = {name: getattr(job, name) for name in Job.__struct_fields__}
    fields["result"] = None if job.result is None else _result(job.result, task, decode)
    same_version = task if task is not None and task.version == spec.version else None
    return JobInfo(**fields, args=decode(lambda data: _args(data, same_version), spec.args))


def _args(data: bytes, task: Definition | None) -> dict[str, Any]:
    args = _read(data, None if task is None else task.arguments.decode_named)
    return args if isinstance(args, dict) else {"": args}


def _result(data: bytes, task: Definition | None, decode: Decode) -> Any:
    return decode(lambda data: _read(data, None if task is None else task.result.decode), data)


def _read(data: bytes, by_annotations: Callable[[bytes], Any] | None) -> Any:
    for read in (by_annotations, values.decode):
        if read is not None:
            try:
                return read(data)
            except (DaybreakError, msgspec.DecodeError, ValueError, TypeError, KeyError, NameError, RecursionError):
                continue
    return values.shown(data)

"""The public object of a batch task: each item is submitted as a job of its own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, Unpack, overload

import msgspec

from daybreak.api.job_handle import JobHandle
from daybreak.api.portal import blocking
from daybreak.api.task import Task, each_row
from daybreak.core.model import JobSpec
from daybreak.tasks.batches import BatchDefinition
from daybreak.tasks.context import Context
from daybreak.tasks.options import JobOptions, check_job_options

T = TypeVar("T")
R = TypeVar("R")

# What a batch task may return: a result for each item, in order. An exception fails the job of that item alone.
Results = Sequence[R | Exception]


class BatchTask(Task[[T], R]):
    """A registered function that takes a list of items. `task([a, b])` calls it in this process; `task.submit(a)`
    submits one item as a job. Workers call it with the items of several jobs at once."""

    definition: BatchDefinition

    def __repr__(self) -> str:
        return f"<batch task {self.name}, {self.definition.batching.size} in a call>"

    def __call__(self, items: Sequence[T], /) -> Any:  # type: ignore[override]
        """Call the plain function with a list in this process, outside any queue."""
        return super().__call__(items)  # type: ignore[arg-type]

    def using(self, **options: Unpack[JobOptions]) -> BatchTask[T, R]:
        """Return the same task with other options for the jobs submitted through it."""
        check_job_options(options)
        return BatchTask(self.definition, self._app, {**self._options, **options})

    async def asubmit_many(self, rows: Iterable[T | Mapping[str, Any]]) -> list[JobHandle[R]]:
        """Submit one job for each item, in few transactions. An item with fields may also be given as a mapping of
        them. All items and their keys are checked before the first is sent. If a full queue or a conflict refuses an
        item, the error names it."""
        return await super().asubmit_many(rows)  # type: ignore[arg-type]

    # Assigned to its own name it would have the types of the base class.
    _submit_many = blocking(asubmit_many)

    def submit_many(self, rows: Iterable[T | Mapping[str, Any]]) -> list[JobHandle[R]]:
        """Submit one job for each item, in few transactions. An item with fields may also be given as a mapping of
        them. All items and their keys are checked before the first is sent. If a full queue or a conflict refuses an
        item, the error names it."""
        return self._submit_many(rows)

    async def amap(self, items: Iterable[T], timeout: object = None) -> list[R]:  # type: ignore[override] # noqa: ASYNC109
        """Submit one job for each item, and return the results in the same order."""
        handles = await self.asubmit_many(each_row("map", items))
        return [await handle.aresult(timeout) for handle in handles]

    _map = blocking(amap)

    def map(self, items: Iterable[T], timeout: object = None) -> list[R]:  # type: ignore[override]
        """Submit one job for each item, and return the results in the same order."""
        return self._map(items, timeout)

    def _call_of_row(self, row: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """An item, or the fields of one where items have fields."""
        arguments = self.definition.arguments
        if isinstance(row, Mapping) and (arguments.is_fields_class or arguments.is_dict):
            return (), dict(row)
        return (row,), {}

    def _with_resources(self, spec: JobSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JobSpec:
        complete = super()._with_resources(spec, args, kwargs)
        key = self.definition.batch_key(complete.args, args, kwargs, complete.options.resources)
        return msgspec.structs.replace(complete, batch=key)


class RegisterBatch(Protocol):
    """`@app.batch_task(...)` above a function."""

    @overload
    def __call__(
        self, function: Callable[[Context, list[T]], Coroutine[Any, Any, Results[R]]], /
    ) -> BatchTask[T, R]: ...
    @overload
    def __call__(self, function: Callable[[Context, list[T]], Results[R]], /) -> BatchTask[T, R]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], Coroutine[Any, Any, Results[R]]], /) -> BatchTask[T, R]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], Results[R]], /) -> BatchTask[T, R]: ...

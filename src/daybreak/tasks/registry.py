"""The registry of an app: its tasks, and the functions that run around them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, ClassVar

from daybreak.core.errors import BadArguments, BadInput, UnknownTask
from daybreak.core.model import DEFAULT_OPTIONS, Batching, Options
from daybreak.core.units import Priority
from daybreak.policy.admit import check_name, check_options, check_version
from daybreak.policy.resources import Resource, Share, needs_of, parse_shares
from daybreak.system.code_digest import source_digest, whole_digest
from daybreak.tasks.admission_rules import Rule
from daybreak.tasks.cache import check_cache, parse_cache
from daybreak.tasks.context import Context
from daybreak.values import Arguments, Result
from daybreak.values.lazy import once

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
Setup = Callable[..., Any]


class Definition:
    """A registered function with its defaults. Its name does not include the module, because code may move."""

    # The options of a task that stand here; all others are `options`.
    OWN: ClassVar = ("name", "version", "aliases", "queue", "priority", "resource", "cache")
    batching: Batching | None = None  # set for a batch task: see batches.py

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        version: int = 1,
        aliases: tuple[str, ...] = (),
        queue: str = "default",
        priority: int = Priority.NORMAL.value,
        options: Options = DEFAULT_OPTIONS,
        resource: object = None,
        cache: object = None,
    ) -> None:
        if not callable(function):
            raise BadInput(f"{function!r} is not a function: write @app.task above a def, or @app.task(retry=3)")
        for what in ("__name__", "__qualname__", "__module__"):
            if not isinstance(getattr(function, what, None), str):  # a functools.partial, or a callable object
                raise BadInput(
                    f"{function!r:.80} has no {what}, so a worker could not import it: "
                    "define a function at the top of a module that calls it, and write @app.task above that"
                )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise BadInput(f"task {function.__name__!r} is a generator: a task returns its result, it does not yield")
        self.function = function
        self.name = name or function.__name__
        if self.name == "<lambda>":
            raise BadInput("a lambda has no name, so a worker could not import it: define the task with def")
        self.version = version
        self.aliases = aliases
        self.queue = queue
        self.priority = priority
        self.options = options
        self.resource = resource
        if not callable(resource):
            needs_of(parse_shares(resource))  # raises now, not at the first job
        self.upgrades: dict[int, Upgrade] = {}
        self.is_async = inspect.iscoroutinefunction(function)
        self.takes_context = _takes_context(function)
        for each in (self.name, *aliases):
            check_name("task", each)
            if not each:
                raise BadInput(f"task {self.name!r}: one of its aliases is empty; leave it out")
        check_name("queue", queue)
        if not queue:
            raise BadInput(f"task {self.name!r}: the name of its queue is empty; leave it out for 'default'")
        check_version(f"task {self.name!r}", version)
        check_options(f"task {self.name!r}", options)
        self.cache = parse_cache(cache, f"task {self.name!r}")
        if self.cache is not None:
            check_cache(self.cache, who=f"task {self.name!r}", code=self.whole_code, parameters=self.parameters)

    @once
    def arguments(self) -> Arguments:
        """Encodes and decodes the arguments of its jobs."""
        return Arguments(self.function, context=self.takes_context)

    @once
    def result(self) -> Result:
        """Encodes and decodes the results of its jobs."""
        return Result.of(self.function)

    @once
    def parameters(self) -> list[str]:
        """The names of its parameters, in order, without the context."""
        return list(inspect.signature(self.function).parameters)[self.takes_context :]

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by the names of their parameters, defaults included."""
        given = (None, *args) if self.takes_context else args
        bound = inspect.signature(self.function).bind(*given, **kwargs)
        bound.apply_defaults()
        return {name: bound.arguments[name] for name in self.parameters if name in bound.arguments}

    def shares(self, resource: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Share]:
        """The resources that a job with these arguments needs; `resource` may be a function of the arguments."""
        return parse_shares(resource(**self.named(args, kwargs)) if callable(resource) else resource)

    @once
    def code(self) -> str:
        """The digest of its code, to detect that a stored job was submitted by other code."""
        return source_digest(self.function)

    @once
    def whole_code(self) -> str:
        """The digest of its code, of its decorators, and of what they hold: they decide a cached result as well."""
        return whole_digest(self.function)

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions of stored jobs that this code can run: its own, and those from which upgrades lead to it without
        a gap."""
        oldest = self.version
        while oldest - 1 in self.upgrades:
            oldest -= 1
        return tuple(range(self.version, oldest - 1, -1))

    @property
    def is_nested(self) -> bool:
        """Whether it is defined inside another function, so that a child process cannot import it."""
        return "<locals>" in self.function.__qualname__

    def upgraded(self, arguments: dict[str, Any], version: int) -> dict[str, Any]:
        """The stored arguments of an older version, upgraded step by step to the present one."""
        while version != self.version:
            try:
                upgrade = self.upgrades[version]
            except KeyError:
                raise BadArguments(
                    f"task {self.name!r} is at version {self.version} and has no upgrade from version {version}: "
                    f"write one with @task.upgrade({version})"
                ) from None
            arguments = upgrade(arguments)
            if not isinstance(arguments, dict):
                raise BadArguments(
                    f"the upgrade of task {self.name!r} from version {version} returned "
                    f"{type(arguments).__name__}: return the arguments as a dict"
                )
            version += 1
        return arguments


class Program:
    """Everything that an app declares, and that a worker's children find when they import the user's code."""

    def __init__(self) -> None:
        self._tasks: dict[str, Definition] = {}
        self._by_name: dict[str, Definition] = {}
        self.setups: list[Setup] = []
        self.wraps: list[Callable[[Context], AbstractContextManager[Any]]] = []
        self.rules: list[Rule] = []
        self.lifespans: list[Callable[[], AbstractAsyncContextManager[Any] | AbstractContextManager[Any]]] = []
        self.fed_queues: list[str] = []  # queues of watched folders, bridges and schedules

    def add(self, definition: Definition) -> None:
        """Register a task. The same function may be registered again; another one of the same name is an error."""
        for name in (definition.name, *definition.aliases):
            before = self._by_name.get(name)
            if before is not None and not _is_same_function(before.function, definition.function):
                raise BadInput(
                    f"two tasks are named {name!r}: {_full_name(before.function)} and "
                    f"{_full_name(definition.function)}; "
                    "give one of them another name with @app.task(name=...)"
                )
        self._tasks[definition.name] = definition
        for name in (definition.name, *definition.aliases):
            self._by_name[name] = definition

    def __getitem__(self, name: str) -> Definition:
        try:
            return self._by_name[name]
        except KeyError:
            raise UnknownTask(name, self._by_name) from None

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Definition]:
        return iter(self._tasks.values())

    def __len__(self) -> int:
        return len(self._tasks)

    def known(self, *, is_async: bool | None = None) -> frozenset[tuple[str, int]]:
        """The (task, version) pairs that this code can run, aliases and old versions included."""
        return frozenset(
            (name, version)
            for name, definition in self._by_name.items()
            if is_async is None or definition.is_async is is_async
            for version in definition.versions
        )

    def batches(self, *, is_async: bool | None = None) -> dict[tuple[str, int], Batching]:
        """How the jobs of each batch task are put together, by (task, version), aliases and old versions included."""
        return {
            (name, version): definition.batching
            for name, definition in self._by_name.items()
            if definition.batching is not None and (is_async is None or definition.is_async is is_async)
            for version in definition.versions
        }

    def resources(self) -> list[Resource]:
        """The resources that are declared with a task. Resources that depend on a job's arguments are not included."""
        named = (
            share.resource for task in self if not callable(task.resource) for share in parse_shares(task.resource)
        )
        return [resource for resource in named if isinstance(resource, Resource)]

    def queues(self) -> tuple[str, ...]:
        """The queues of its tasks, watched folders and schedules, and `default`."""
        return tuple(dict.fromkeys(("default", *(definition.queue for definition in self), *self.fed_queues)))


def _takes_context(function: Callable[..., Any]) -> bool:
    """Whether the first parameter is annotated `Context`. The annotation may be text, and not resolvable yet."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None:
        return False
    if isinstance(first.annotation, str):
        return first.annotation.rsplit(".", 1)[-1].strip("'\"") == "Context"
    return isinstance(first.annotation, type) and issubclass(first.annotation, Context)


def _is_same_function(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    # A notebook cell that is run again, or a reloaded module, defines the same task again.
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


def _full_name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"

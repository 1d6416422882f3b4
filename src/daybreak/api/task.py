"""The public task object: call it directly, or submit it as a job. Options precede the arguments: `using(...)`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Protocol, TypeVar, Unpack

import msgspec

from daybreak.api.cached_submits import CachedSubmits
from daybreak.api.hooks import Hooks
from daybreak.api.job_handle import JobHandle
from daybreak.api.portal import Portal, blocking
from daybreak.api.resources import provide
from daybreak.api.store_sessions import Sessions, on_store_loop
from daybreak.core.errors import BadInput, KeyConflict, KeySpent, QueueFull, StoreUnavailable, UniqueConflict
from daybreak.core.metadata import decode_meta, encode_meta
from daybreak.core.model import JobSpec, Need, Options
from daybreak.core.units import counted
from daybreak.policy.admit import check_name, check_size, digest
from daybreak.policy.parse_options import SUBMIT_OPTIONS, build_spec
from daybreak.policy.resources import Resource, needs_of
from daybreak.store.protocol import Inserted, Verdict
from daybreak.tasks.admission_rules import Admission, apply_rules
from daybreak.tasks.cache import REFRESH, chosen_cache
from daybreak.tasks.context import Context, current
from daybreak.tasks.import_guard import refuse_during_import
from daybreak.tasks.options import JobOptions, check_job_options
from daybreak.tasks.registry import Definition, Program, Upgrade
from daybreak.values.file import MARK, NotStored

if TYPE_CHECKING:
    from daybreak.api.spooled_submits import SpooledSubmits
    from daybreak.client.client import Client

P = ParamSpec("P")
R = TypeVar("R")

CHUNK: Final = 5000
NOT_CHOSEN: Final = object()


class TaskApp(Protocol):
    """The parts of the app that a task uses."""

    by: str
    hooks: Hooks
    program: Program

    @property
    def _sessions(self) -> Sessions: ...

    def worker_command(self) -> str: ...


class Task(Generic[P, R]):
    """A registered function. `task(...)` calls it in this process; `task.submit(...)` submits it as a job."""

    def __init__(self, definition: Definition, app: TaskApp, options: Mapping[str, Any] | None = None) -> None:
        self.definition = definition
        self._app = app
        self._options = dict(options or {})
        key = self._options.get("key")
        self._key_by: Callable[..., object] | None = key if callable(key) else None
        self._template: JobSpec | None = None
        self._shared: dict[tuple[Need, ...], Options] = {}
        self._declared: dict[str, Resource] = {}
        self._caches = _caches_of(definition, self._options)
        functools.update_wrapper(self, definition.function)

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def _sessions(self) -> Sessions:
        return self._app._sessions  # noqa: SLF001 - the app and its tasks share these internals

    @property
    def _portal(self) -> Portal:
        return self._sessions.portal

    @property
    def queue(self) -> str:
        """The queue of the jobs that are submitted through it."""
        queue: str = self._options.get("queue", self.definition.queue)
        return queue

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the plain function in this process, outside any queue."""
        if not self.definition.takes_context:
            return self.definition.function(*args, **kwargs)
        return self.definition.function(current.get(None) or Context(task=self.name), *args, **kwargs)

    def using(self, **options: Unpack[JobOptions]) -> Task[P, R]:
        """Return the same task with other options for the jobs submitted through it."""
        check_job_options(options)
        return Task(self.definition, self._app, {**self._options, **options})

    def upgrade(self, from_version: int) -> Callable[[Upgrade], Upgrade]:
        """Register a function that converts stored arguments of an older version to the next version:
        `def up(args: dict) -> dict`."""

        def register(function: Upgrade) -> Upgrade:
            if not 0 <= from_version < self.definition.version:
                raise BadInput(
                    f"task {self.name!r} is at version {self.definition.version}: "
                    f"an upgrade from version {from_version} is never used"
                )
            self.definition.upgrades[from_version] = function
            return function

        return register

    # -- submitting ----------------------------------------------------------------------------------------------------

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Submit a job with the function's own arguments; it is accepted and durable when this returns. Set options
        with using(...) first."""
        refuse_during_import("submit")
        try:
            encoded = self.definition.arguments.encode(args, kwargs)
            has_files = MARK in encoded and not self._sessions.files.knows(encoded)
        except NotStored:
            has_files = True
        if has_files:
            encoded = self._sessions.files.encode(lambda: self.definition.arguments.encode(args, kwargs))
        plain = self._spec(check_size(self.name, encoded), args, kwargs)
        spec = self._with_resources(plain, args, kwargs)
        if spec.options.resources:
            self._provide(spec)
        if self._caches is not None:
            spec = self._caches.keyed(self._sessions, spec)
        if (connection := self._options.get("tx")) is not None:
            [job] = self._portal.run(self._sessions.client()).submit_within([spec], connection)
            return self._handle(job)
        template = self._template if spec is plain and "id" not in self._options else None
        job = self._sessions.insert(spec, template)
        self._app.hooks.submitted(spec, job)
        if spec.flight is not None and job == spec.id and self._app.hooks.wants("completed"):
            self._portal.run(self._sessions.here(self._report_found([job])))
        return self._handle(job)

    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Submit a job with the function's own arguments; it is accepted and durable when this returns. Set options
        with using(...) first."""
        refuse_during_import("submit")
        encoded = await self._aencoded(partial(self.definition.arguments.encode, args, kwargs))
        plain = self._spec(encoded, args, kwargs)
        spec = self._with_resources(plain, args, kwargs)
        if spec.options.resources:
            await self._sessions.here(self._aprovide(spec))
        if self._caches is not None:
            [spec] = await self._caches.akeyed(self._sessions, [spec])
        if (connection := self._options.get("tx")) is not None:
            [job] = await (await self._sessions.client()).submit_within_async([spec], connection)
            return self._handle(job)
        job = await self._sessions.here(self._accept(spec))
        self._app.hooks.submitted(spec, job)
        if spec.flight is not None and job == spec.id and self._app.hooks.wants("completed"):
            await self._sessions.here(self._report_found([job]))
        return self._handle(job)

    async def _aencoded(self, encode: Callable[[], bytes]) -> bytes:
        """The encoded arguments, once the files among them are stored."""
        try:
            encoded = encode()
            has_files = MARK in encoded and not self._sessions.files.knows(encoded)
        except NotStored:
            has_files = True
        return await self._sessions.files.aencode(encode) if has_files else encoded

    async def _accept(self, spec: JobSpec) -> str:
        return await self._sessions.ainsert(spec)

    async def _report_found(self, jobs: list[str]) -> None:
        """Report those of these new jobs that were completed as they were submitted: no worker does."""
        client = self._sessions.client_if_open()
        for job in [] if client is None else await client.store.get(jobs):
            if job is not None and job.cached_from is not None:
                self._app.hooks.found(job)

    @on_store_loop
    async def asubmit_many(self, rows: Iterable[Mapping[str, Any]]) -> list[JobHandle[R]]:
        """Submit one job for each row of named arguments, in few transactions. All rows and their keys are checked
        before the first row is sent. If a full queue or a conflict refuses a row, the error names that row."""
        refuse_during_import("submit_many")
        specs = await self._specs_of(rows)
        if "id" in self._options and len(specs) > 1:
            raise BadInput("using(id=...) names one job, but submit_many and map make a job per row: leave the id out")
        if "tx" in self._options:
            raise BadInput(
                "submit_many and map use transactions of their own: with using(tx=...), call submit(...) for each row"
            )
        _check_rows(specs)
        sessions = self._sessions
        if any(spec.options.resources for spec in specs):
            await self._aprovide(*specs)
        if self._caches is not None:
            specs = await self._caches.akeyed(sessions, specs)
        if sessions.spool is not None:
            return await self._submit_or_spool(sessions.spool, specs)
        return await self._send_many(await sessions.client(), specs)

    async def _submit_or_spool(self, spool: SpooledSubmits, specs: list[JobSpec]) -> list[JobHandle[R]]:
        client = await spool.open_client(specs)
        if client is not None:
            with contextlib.suppress(StoreUnavailable), spool.sending(len(specs)):
                return await self._send_many(client, specs)
        # Jobs that the store has accepted before it went away are duplicates when they are forwarded.
        await spool.put_many(specs)
        for spec in specs:
            self._app.hooks.submitted(spec, spec.id)
        return [self._handle(spec.id) for spec in specs]

    async def _send_many(self, client: Client, specs: list[JobSpec]) -> list[JobHandle[R]]:
        sessions = self._sessions
        if any(spec.key is not None for spec in specs):
            await client.check_keys(specs)
        handles: list[JobHandle[R]] = []
        for start in range(0, len(specs), CHUNK):
            chunk = specs[start : start + CHUNK]
            # Admission rules and the cache change more than the arguments: then the specs do not share the template.
            is_like = self._caches is None and not self._app.program.rules
            insert = partial(client.submit_like, self._template) if is_like else client.submit_many
            answers = await insert(chunk)
            for spec, inserted in zip(chunk, answers, strict=True):
                job = inserted.job if inserted.verdict is Verdict.NEW else _accepted(spec, inserted, len(handles))
                handles.append(JobHandle(sessions, self._app.program, job, self._app.worker_command))
                self._app.hooks.submitted(spec, job)
            await self._app.hooks.found_among(client, answers)
        return handles

    async def _specs_of(self, rows: Iterable[Mapping[str, Any]]) -> list[JobSpec]:
        arguments, files = self.definition.arguments, self._sessions.files
        specs: list[JobSpec] = []
        for number, given in enumerate(each_row("submit_many", rows)):
            call = self._call_of_row(given)
            if call is None:
                expected = ", ".join(f"{name!r}: ..." for name in self.definition.parameters)
                raise BadInput(
                    f"row {number} of submit_many is of type {type(given).__name__}, not a mapping of argument names:"
                    f" pass {{{expected}}}, or pass plain values to map(...)"
                )
            args, named = call
            encode = partial(arguments.encode, args, named) if args else partial(arguments.encode_named, named)
            try:
                try:
                    encoded = encode()
                    has_files = MARK in encoded and not files.knows(encoded)
                except NotStored:
                    has_files = True
                if has_files:
                    encoded = await files.aencode(encode)
                specs.append(self._with_resources(self._spec(check_size(self.name, encoded), args, named), args, named))
            except BadInput as error:
                raise type(error)(f"row {number}: {error}") from None
        return specs

    def _call_of_row(self, row: Any) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments of one row of `submit_many`, by position and by name; None if it is no row."""
        named = _named(row)
        return None if named is None else ((), dict(named))

    submit_many = blocking(asubmit_many)

    async def amap(self, *columns: Iterable[Any], timeout: object = None) -> list[R]:  # noqa: ASYNC109
        """Submit one job per element, or per tuple of elements as the builtin `map` does, and return the results in the
        same order."""
        names = self.definition.parameters
        if len(columns) > len(names):
            takes, given = counted(len(names), "argument"), counted(len(columns), "column")
            raise BadInput(f"task {self.name!r} takes {takes}; map was given {given}")
        handles = await self.asubmit_many(dict(zip(names, row, strict=False)) for row in _zip_columns(columns))
        return [await handle.aresult(timeout) for handle in handles]

    map = blocking(amap)

    def _spec(self, args: bytes, positional: tuple[Any, ...], named: dict[str, Any]) -> JobSpec:
        """Build the spec of one job. Options are parsed once; only the id, the arguments and the key differ by job."""
        if self._template is None:
            self._template = self._make_template()
        template = self._template
        new_id = self._options.get("id") or self._sessions.new_id()
        new = msgspec.structs.replace(template, id=new_id, args=args)
        key = template.key if self._key_by is None else self._key_of(self._key_by, positional, named)
        if key is None:
            return new
        return msgspec.structs.replace(new, key=key, digest=digest(new), code=self.definition.code)

    def _make_template(self) -> JobSpec:
        options = {name: value for name, value in self._options.items() if name in SUBMIT_OPTIONS}
        if self._key_by is not None:
            del options["key"]
        definition = self.definition
        return build_spec(
            definition.name,
            b"{}",
            {"queue": definition.queue, "priority": definition.priority, **options},  # type: ignore[typeddict-item]
            new_id="template",
            by=self._app.by,
            version=definition.version,
            defaults=definition.options,
        )

    def _key_of(self, key_by: Callable[..., object], positional: tuple[Any, ...], named: dict[str, Any]) -> str:
        key = key_by(**self.definition.named(positional, named))
        if not isinstance(key, str) or not key:
            raise BadInput(f"using(key=...) of task {self.name!r} returned {key!r:.60}: it must return a string")
        check_name("key", key)
        return key

    # -- rules and resources -------------------------------------------------------------------------------------------

    def _with_resources(self, spec: JobSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JobSpec:
        """Apply the app's admission rules, then add the resources that the job needs. They may depend on its
        arguments."""
        resource = self._options.get("resource", self.definition.resource)
        if self._app.program.rules:
            spec, resource = self._with_rules(spec, resource, args, kwargs)
        if resource is None:
            return spec
        shares = self.definition.shares(resource, args, kwargs)
        needs = needs_of(shares)
        options = self._shared.get(needs)
        if options is None:
            if len(self._shared) >= CHUNK:
                self._shared.clear()
            options = self._shared[needs] = msgspec.structs.replace(spec.options, resources=needs)
        for share in shares:
            if isinstance(share.resource, Resource):
                self._declared[share.resource.name] = share.resource
        return msgspec.structs.replace(spec, options=options)

    def _with_rules(
        self, spec: JobSpec, resource: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[JobSpec, object]:
        submitted = Admission(
            task=spec.task,
            args=self.definition.named(args, kwargs),
            by=spec.by,
            queue=spec.queue,
            priority=spec.priority,
            owner=spec.owner,
            tags=spec.tags,
            meta=decode_meta(spec.meta),
            resource=resource,
            said=frozenset(self._options),
        )
        admitted = apply_rules(self._app.program.rules, submitted)
        if admitted is submitted:
            return spec, resource
        # The digest of the key covers the values before the rules: the rules may change between two submissions.
        changed = msgspec.structs.replace(
            spec,
            queue=admitted.queue,
            priority=admitted.priority,
            owner=admitted.owner,
            tags=admitted.tags,
            meta=encode_meta(admitted.meta),
        )
        return changed, admitted.resource

    def _provide(self, *specs: JobSpec) -> None:
        if any(self._new(spec) for spec in specs):
            self._portal.run(self._sessions.here(self._aprovide(*specs)))

    async def _aprovide(self, *specs: JobSpec) -> None:
        """Store the settings that the code declares for resources, before the first job that needs them."""
        new = {name: self._declared[name] for spec in specs for name in self._new(spec)}
        if not new:
            return
        spool = self._sessions.spool
        if spool is None:
            await self._provide_now(await self._sessions.client(), new)
            return
        # The forwarder writes them, should the jobs go into the spool.
        await spool.declare({name: resource.settings for name, resource in new.items()})
        client = await spool.open_client([])
        if client is not None:
            with contextlib.suppress(StoreUnavailable), spool.sending(len(new)):
                await self._provide_now(client, new)

    async def _provide_now(self, client: Client, new: Mapping[str, Resource]) -> None:
        await provide(client, new.values())
        self._sessions.provided.update((name, resource.settings) for name, resource in new.items())

    def _new(self, spec: JobSpec) -> list[str]:
        """The job's resources whose declared settings are not in the store yet."""
        provided, declared = self._sessions.provided, self._declared
        return [name for name in _names(spec) if name in declared and provided.get(name) != declared[name].settings]

    def _handle(self, id: str) -> JobHandle[R]:  # noqa: A002
        return JobHandle(self._sessions, self._app.program, id, self._app.worker_command)


def _caches_of(definition: Definition, options: Mapping[str, Any]) -> CachedSubmits | None:
    cache = definition.cache
    chosen = options.get("cache", NOT_CHOSEN)
    if chosen is not NOT_CHOSEN:
        cache = chosen_cache(chosen, cache, f"task {definition.name!r}")
    return None if cache is None else CachedSubmits(definition, cache, refreshes=chosen == REFRESH)


async def prepare(task: Task[..., Any], named: Mapping[str, Any], *, by: str) -> JobSpec:
    """Build the job that `task.submit(**named)` would submit, for a caller named `by`, without submitting it. The app's
    rules are applied, and the resources' declared settings are stored. For servers, which submit for others."""
    arguments = dict(named)
    encoded = await task._aencoded(partial(task.definition.arguments.encode_named, arguments))  # noqa: SLF001 - of this module
    check_size(task.name, encoded)
    plain = msgspec.structs.replace(task._spec(encoded, (), arguments), by=by)  # noqa: SLF001
    spec = task._with_resources(plain, (), arguments)  # noqa: SLF001
    if spec.options.resources:
        await task._aprovide(spec)  # noqa: SLF001
    if task._caches is not None:  # noqa: SLF001
        [spec] = await task._caches.akeyed(task._sessions, [spec])  # noqa: SLF001
    return spec


def _names(spec: JobSpec) -> list[str]:
    return [need.resource for need in spec.options.resources]


def each_row(method: str, rows: Iterable[Any]) -> Iterator[Any]:
    """The rows that a method was given. Text, a mapping, or what cannot be iterated is refused."""
    kind = type(rows)
    if isinstance(rows, str | bytes | bytearray | Mapping):
        raise BadInput(f"{method} was given a single {kind.__name__}: pass a list")
    if not hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__"):
        raise BadInput(f"{method} was given {kind.__name__}, which is not iterable: pass a list")
    return iter(rows)


_ENDED: Final = object()


def _zip_columns(columns: tuple[Iterable[Any], ...]) -> Iterator[tuple[Any, ...]]:
    """Yield one row per job. All columns must have the same length."""
    if not columns:
        raise BadInput("map was given no columns: pass one list of values per parameter, in the parameters' order")
    for number, row in enumerate(zip_longest(*[each_row("map", column) for column in columns], fillvalue=_ENDED)):
        for column, value in enumerate(row, 1):
            if value is _ENDED:
                raise BadInput(
                    f"column {column} of map ends after {counted(number, 'element')}, and another column is longer:"
                    " each job takes one element of every column, so make them equally long"
                )
        yield row


def _named(row: Any) -> Mapping[str, Any] | None:
    """The row as a mapping of argument names. Rows of databases and tables often behave like one without being one."""
    if isinstance(row, Mapping):
        return row
    return dict(row) if hasattr(type(row), "keys") and hasattr(type(row), "__getitem__") else None


def _check_rows(specs: Sequence[JobSpec]) -> None:
    """Refuse two rows that have the same key and different content. With the same content they are one job."""
    rows: dict[str, int] = {}
    for number, spec in enumerate(specs):
        if spec.key is None:
            continue
        first = rows.setdefault(spec.key, number)
        if specs[first].digest != spec.digest:
            note = f"rows {first} and {number} have the same idempotency key {spec.key!r} but different content"
            raise KeyConflict(spec.key, "", f"{note}: nothing was submitted")


def _accepted(spec: JobSpec, inserted: Inserted, row: int) -> str:
    match inserted.verdict:
        case Verdict.FULL:
            raise QueueFull(spec.queue, note=_refused(row), resources=_names(spec))
        case Verdict.CONFLICT if inserted.same == "unique":
            raise UniqueConflict(spec.unique or "", inserted.job)
        case Verdict.CONFLICT:
            raise KeyConflict(spec.key or "", inserted.job, _refused(row))
        case Verdict.SPENT:
            raise KeySpent(spec.key or "", inserted.job, _refused(row))
        case _:
            return inserted.job


def _refused(row: int) -> str:
    return f"row {row} was refused; the rows before it were accepted"

"""Which results may be used again: `cache=True`, or `Cache(...)` with more to say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from daybreak.core.errors import BadInput
from daybreak.core.model import Caching
from daybreak.core.units import ZERO, duration
from daybreak.system.code_digest import part_digest

Environment = str | Mapping[str, Any] | Callable[[], Mapping[str, Any] | None]
Salt = str | Callable[..., Any] | type | ModuleType
REFRESH: Final = "refresh"
CacheOption = bool | Literal["refresh"]
VERSION_CHARS: Final = 100
NAMES_LIMIT: Final = 50  # names of one kind: of the environment, of the salt


class Cache(Struct, frozen=True, kw_only=True):
    """How results of a task are used again. A job gets a known result if everything that decides it is equal: the task
    and its version, its code, the arguments (of a File its content), the environment and the salt.

    ttl          how long a result may be used: "7d"; without it, until it makes room
    size         how many bytes of results, with their files, are kept for the task: "2GB"; what was used longest ago
                 makes room
    version      counts instead of the code of the task's function: change it when the results change
    salt         more that counts: functions, classes and modules by their code, and plain text
    environment  more that counts: the names of environment variables, a dict, or a function without parameters that
                 returns a dict; all are read where and when the job is submitted. A function that returns None
                 does not know now: the job runs, and its result is not kept
    ignore       names of parameters that do not count
    """

    ttl: timedelta | None = None
    size: int | None = None
    version: str | None = None
    salt: tuple[Salt, ...] = ()
    environment: tuple[Environment, ...] = ()
    ignore: tuple[str, ...] = ()

    if TYPE_CHECKING:  # the constructor accepts more types than the fields hold

        def __init__(
            self,
            *,
            ttl: timedelta | str | None = None,
            size: int | str | None = None,
            version: str | int | None = None,
            salt: Salt | Iterable[Salt] = (),
            environment: Environment | Iterable[Environment] = (),
            ignore: str | Iterable[str] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.ttl is not None:
            ttl = duration(self.ttl, "Cache: ttl")
            if ttl <= ZERO:
                raise BadInput("Cache: ttl must be longer than 0; to keep nothing, write cache=False")
            force_setattr(self, "ttl", ttl)
        if self.size is not None:
            from daybreak.config import size  # noqa: PLC0415 - most caches have no limit

            force_setattr(self, "size", size(self.size, "Cache: size"))
        force_setattr(self, "version", _version(self.version))
        force_setattr(self, "salt", _several("salt", self.salt, _check_salt))
        force_setattr(self, "environment", _several("environment", self.environment, _check_environment))
        force_setattr(self, "ignore", _several("ignore", self.ignore, _check_ignored))

    @property
    def caching(self) -> Caching:
        """What the store needs to know of it."""
        return Caching(ttl=self.ttl, size=self.size)


def parse_cache(value: object, who: str) -> Cache | None:
    """The cache of a task, as `@app.task(cache=...)` takes it. `who` names the task in errors."""
    if value is None or value is False:
        return None
    if value is True:
        return PLAIN
    if isinstance(value, Cache):
        return value
    raise BadInput(f"{who}: cache={value!r:.60}: write cache=True, or cache=Cache(ttl='7d')")


def chosen_cache(value: object, declared: Cache | None, who: str) -> Cache | None:
    """The cache of jobs, as `task.using(cache=...)` takes it. True and "refresh" mean what the task declares."""
    if value is True or value == REFRESH:
        return declared or PLAIN
    if value is None or value is False or isinstance(value, Cache):
        return value or None
    raise BadInput(
        f"{who}: using(cache={value!r:.60}): write True, False, 'refresh' to compute a result anew, or Cache(ttl='7d')"
    )


def check_cache(cache: Cache, *, who: str, code: str, parameters: Iterable[str]) -> None:
    """Refuse a cache that does not fit the function of the task."""
    if not code and cache.version is None:
        raise BadInput(
            f"{who}: its function has no Python code, so nobody could see that it has changed: write "
            "cache=Cache(version='1'), and another version when its results change"
        )
    known = list(parameters)
    for name in cache.ignore:
        if name not in known:
            raise BadInput(
                f"{who}: Cache(ignore={name!r}) is none of its parameters, which are {', '.join(known) or 'none'}"
            )


def salt_name(part: Salt) -> str:
    """What people call a part of the salt."""
    if isinstance(part, str):
        return "text"
    return str(getattr(part, "__qualname__", None) or getattr(part, "__name__", type(part).__name__))


def _several(what: str, value: Any, check: Callable[[Any], None]) -> tuple[Any, ...]:
    """One value or several, as a tuple."""
    several = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping | type)
    found = tuple(value) if several else (value,)
    if len(found) > NAMES_LIMIT:
        raise BadInput(f"Cache: {what} has {len(found)} entries; the limit is {NAMES_LIMIT}")
    for one in found:
        check(one)
    return found


def _version(value: object) -> str | None:
    if value is None:
        return None
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text or len(text) > VERSION_CHARS or not text.isprintable():
        raise BadInput(f"Cache: version={value!r:.60}: write a text of 1 to {VERSION_CHARS} characters, or a number")
    return text


def _check_salt(part: object) -> None:
    if isinstance(part, str):
        return
    if not (callable(part) or isinstance(part, ModuleType)):
        raise BadInput(f"Cache: salt={part!r:.60}: write a function, a class, a module or a text")
    if not part_digest(part):
        raise BadInput(
            f"Cache: the salt {salt_name(part)!r} is not Python code, so nobody could see that it has changed: write a "
            "text that says its version"
        )


def _check_environment(part: object) -> None:
    if isinstance(part, str):
        if not part or "=" in part or not part.isprintable():
            raise BadInput(
                f"Cache: environment={part!r:.60}: write the name of an environment variable, such as 'PLECS_VERSION', "
                "or a dict for a value"
            )
    elif isinstance(part, Mapping):
        for name in part:
            if not isinstance(name, str):
                raise BadInput(f"Cache: environment: {name!r:.60} is not a name; the keys of the dict are texts")
    elif not callable(part):
        raise BadInput(
            f"Cache: environment={part!r:.60}: write the names of environment variables, a dict, or a function that "
            "returns one"
        )


def _check_ignored(name: object) -> None:
    if not isinstance(name, str):
        raise BadInput(f"Cache: ignore={name!r:.60}: write the names of parameters")


PLAIN: Final = Cache()

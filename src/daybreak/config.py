"""Frozen settings: which store, which app, how a worker runs; and where each of them was said.

command line > argument in code > environment (DAYBREAK_*) > daybreak.toml, or [tool.daybreak] in pyproject.toml
> default

The settings file is looked for from the current folder upwards; the folder it lies in is the project folder, from which
relative paths count. Without one, that is the current folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from daybreak.core.errors import BadInput, StoreUnavailable, Unsupported
from daybreak.core.units import clean, duration

DEFAULT_FILE: Final = "daybreak.db"
SUFFIXES: Final = (".db", ".sqlite", ".sqlite3")
COMMAND_LINE: Final = "the command line"
IN_CODE: Final = "an argument in code"
BY_DEFAULT: Final = "the default"

# Known by name, so that the error says "not yet" and not "no such thing".
_NOT_YET: Final = {"directory": "directory", "sqs": "SQS"}
# What people write, and the scheme that stands for it in full.
_SERVERS: Final = {
    "postgresql": "postgresql", "postgres": "postgresql", "redis": "redis", "rediss": "rediss", "valkey": "redis",
    "valkeys": "rediss", "redis+unix": "redis+unix", "unix": "redis+unix",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """`url` names a store in full, whatever it was written as; `app` is a target such as `tasks.py:app`.

    `worker` holds what was said of workers, by the names of WorkerSettings; `alerts` is the table of that name
    (`api/alerts/settings.py` reads it). `origins` says where each came from."""

    url: str
    folder: Path
    app: str | None = None
    worker: Mapping[str, Any] = field(default_factory=dict)
    alerts: Mapping[str, Any] = field(default_factory=dict)
    file: Path | None = None
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path | None:
        """The store's file, where it is one."""
        return path_of(self.url)

    @property
    def store(self) -> str:
        """The store and where it was named, for people."""
        return f"{self.path or shown(self.url)} (from {self.origins.get('url', BY_DEFAULT)})"


# -- the layers --------------------------------------------------------------------------------------------------------

_command_line: dict[str, str | None] = {}


@contextlib.contextmanager
def command_line(*, url: str | None = None, app: str | None = None) -> Iterator[None]:
    """What the command line says outranks what code says, also in apps that are loaded meanwhile, in any thread."""
    before = dict(_command_line)
    _command_line.update({key: value for key, value in (("url", url), ("app", app)) if value})
    try:
        yield
    finally:
        _command_line.clear()
        _command_line.update(before)


def resolve(
    url: str | None = None,
    *,
    app: str | None = None,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The settings that hold here; `url` and `app` are what the code says."""
    environ = os.environ if environ is None else environ
    file, said = _find(here() if cwd is None else cwd)
    folder = file.parent if file else (here() if cwd is None else cwd)
    from_file, from_environment = _of_file(said, file), _of_environment(environ)
    layers: list[tuple[str, Mapping[str, Any]]] = [
        (COMMAND_LINE, _command_line),
        (IN_CODE, {"url": url, "app": app}),
        ("environment", from_environment),
        (str(file), from_file),
    ]
    found: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for key in ("url", "app", *(f"worker.{name}" for name in _WORKER)):
        for origin, layer in layers:
            if (value := layer.get(key)) is not None:
                found[key] = value
                origins[key] = _variable(key) if origin == "environment" else origin
                break
    if "url" not in found:
        found["url"], origins["url"] = DEFAULT_FILE, BY_DEFAULT
    if found.get("app") and origins["app"] == str(file):
        found["app"] = from_folder(found["app"], folder)
    return Settings(
        url=url_of(found["url"], folder, origins["url"]),
        folder=folder,
        app=found.get("app"),
        worker={_WORKER[name][0]: found[f"worker.{name}"] for name in _WORKER if f"worker.{name}" in found},
        alerts=_table(said.get("alerts", {}), file, "alerts") if file else {},
        file=file,
        origins=origins,
    )


def here() -> Path:
    """The current folder."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise BadInput("the current folder was deleted: go to another one first") from None


def from_folder(app: str, folder: Path) -> str:
    """A target whose file lies relative to a folder; a module has none."""
    name, colon, attribute = app.rpartition(":")
    place = name if colon and attribute.isidentifier() and name else app
    return str(folder / place) + app[len(place) :] if place.endswith(".py") else app


# -- stores by URL -----------------------------------------------------------------------------------------------------


def url_of(text: str, folder: Path, origin: str = "") -> str:
    """What people write for a store, in full: `sqlite:////abs/jobs.db`, `postgresql://...`, `redis://...` or
    `memory://`. Relative paths count from `folder`."""
    told = f" (from {origin})" if origin else ""
    if not isinstance(text, str):
        raise BadInput(f"{text!r}{told} is no store: write a path such as jobs.db, or a URL such as sqlite:///jobs.db")
    scheme, separator, rest = text.partition("://")
    if text == "memory://":
        return text
    if not separator:
        _refuse_short(text, told)
    if separator and scheme.lower() == "sqlite":
        return _sqlite(unquote(_file_part(rest, text, told)), folder, told)
    if separator and (server := _SERVERS.get(scheme.lower())) is not None:
        return _server(server, rest, told)
    if separator:
        # Only the scheme is repeated: the rest may hold a password.
        kind = _NOT_YET.get(scheme.lower())
        if kind is not None:
            raise Unsupported(
                f"{scheme}://{told}: there is no {kind} store yet in this version; "
                "use a SQLite file, such as sqlite:///daybreak.db"
            )
        raise BadInput(
            f"{scheme}://{told} is no store that Daybreak knows: write sqlite:///jobs.db, postgresql://host/database, "
            "redis://host or memory://"
        )
    if not text.endswith(SUFFIXES):
        raise BadInput(
            f"{text!r}{told} is no store: write a path that ends in {', '.join(SUFFIXES)}, or a URL such as "
            "sqlite:///jobs.db"
        )
    return _sqlite(text, folder, told)


def _refuse_short(text: str, told: str) -> None:
    """A scheme without its slashes: taken for a path, it would name a file that nobody meant."""
    scheme, colon, rest = text.partition(":")
    known = scheme.lower()
    if colon and known == "sqlite":
        raise BadInput(f"{text!r}{told}: a URL of a file has three slashes, write sqlite:///{rest or 'jobs.db'}")
    if colon and (known == "memory" or known in _SERVERS or known in _NOT_YET):
        # The rest may hold a password.
        raise BadInput(f"{scheme}:{told} is no URL of a store: write {scheme}:// and what follows")


def _file_part(rest: str, text: str, told: str) -> str:
    if not rest.startswith("/"):
        raise BadInput(
            f"{text!r}{told}: a file on this machine has three slashes, sqlite:///{rest or 'jobs.db'}, "
            "and a fourth before a path from the root"
        )
    place, question, _ = rest[1:].partition("?")
    if question:
        raise BadInput(f"{text!r}{told}: a sqlite URL takes no options after '?'; write %3F if the name has one")
    return place


def _sqlite(place: str, folder: Path, told: str) -> str:
    if not place or "\0" in place:
        raise BadInput(f"{place!r}{told} names no file: write sqlite:///jobs.db")
    try:
        named = Path(place).expanduser()
    except RuntimeError:
        raise BadInput(
            f"{clean(place)!r}{told}: nobody knows the home folder of {clean(Path(place).parts[0])}; "
            "write the path in full"
        ) from None
    path = Path(os.path.abspath(folder / named))  # noqa: PTH100 - links stay as they were written
    check_path(path, told)
    return "sqlite:///" + quote(path.as_posix(), safe="/:")


def check_path(path: Path, told: str = "") -> None:
    """Refuse a path at which no store can ever be. What may be there later, or is not there, is not judged."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise BadInput(
            f"{clean(str(path))}{told} cannot be used: SQLite opens only paths that are UTF-8 text; "
            "rename it, or name one elsewhere"
        ) from None
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise BadInput(
                f"{_short(str(path))}{told}: the name is longer than this system allows; write a shorter one"
            ) from None
        if error.errno == errno.ELOOP:
            raise StoreUnavailable(
                f"{path}{told} leads over a link that leads back to itself: mend it, or name another store"
            ) from None


def _short(text: str, limit: int = 100) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _server(scheme: str, rest: str, told: str) -> str:
    if any(not char.isprintable() or char.isspace() for char in rest):
        raise BadInput(f"{scheme}://{told}: a URL has no spaces: write them as %20")
    try:
        urlsplit(f"{scheme}://{rest}").port  # noqa: B018 - raises if it is none
    except ValueError as error:
        # What stands in the URL may be a password that was not quoted.
        what = "its port is no number" if "ort" in str(error) else "it is no URL"
        raise BadInput(
            f"{scheme}://{told}: {what}; write special characters of a password as %XX, such as %40 for @"
        ) from None
    return f"{scheme}://{rest}"


def shown(url: str) -> str:
    """A URL as people may see it: without its password."""
    scheme, separator, rest = url.partition("://")
    rest = re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1***", rest, flags=re.IGNORECASE)
    # A password may hold a ?, a / or an @ that nobody has spelt as it should be: only what looks like options is none.
    options = re.search(r"\?\w+=[^?]*$", rest)
    end = len(rest) if options is None else options.start()
    if "@" not in rest[:end] and "/" not in rest[:end]:
        end = len(rest)
    name, at, host = rest[:end].rpartition("@")
    if at and ":" in name:
        name = f"{name.partition(':')[0]}:***"
    return f"{scheme}{separator}{name}{at}{host}{rest[end:]}"


def path_of(url: str) -> Path | None:
    """The file behind a URL that `url_of` gave; None for a store that is no file."""
    return Path(unquote(url.removeprefix("sqlite:///"))) if url.startswith("sqlite:///") else None


# -- the settings file -------------------------------------------------------------------------------------------------


def _find(start: Path) -> tuple[Path | None, dict[str, Any]]:
    for folder in (start, *start.parents):
        own = folder / "daybreak.toml"
        if _is_usable(own, folder, start):
            return own, _read(own)
        shared = folder / "pyproject.toml"
        # A pyproject.toml that never mentions us may be broken: that is not for us to say.
        if _is_usable(shared, folder, start) and b"daybreak" in _bytes(shared):
            tools = _read(shared).get("tool")
            if isinstance(tools, dict) and "daybreak" in tools:
                return shared, _table(tools["daybreak"], shared, "tool.daybreak")
    return None, {}


def _is_usable(path: Path, folder: Path, start: Path) -> bool:
    """A settings file names code to load: one that a stranger could lay into a shared folder above us is not ours."""
    try:
        about = path.stat()
    except OSError:
        return False
    if not stat.S_ISREG(about.st_mode):
        return False
    if folder == start or not hasattr(os, "geteuid") or about.st_uid in (os.geteuid(), 0):
        return True
    return not folder.stat().st_mode & stat.S_IWOTH


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_bytes(path).decode())
    except UnicodeDecodeError:
        raise BadInput(f"{path} is no UTF-8 text: save it as such") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"{path} is no valid TOML: {error}") from None


def _table(value: object, file: Path, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"{file}: {name} is a {_kind(value)}; write a table, [{name}]")
    return value


def _of_file(said: dict[str, Any], file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    _refuse_unknown(said, ("url", "app", "worker", "alerts"), str(file), "")
    found: dict[str, Any] = {key: _text(said[key], f"{file}: {key}") for key in ("url", "app") if key in said}
    worker = _table(said.get("worker", {}), file, "worker")
    _refuse_unknown(worker, _WORKER, str(file), "worker.")
    for key, value in worker.items():
        found[f"worker.{key}"] = _WORKER[key][1](value, f"{file}: worker.{key}")
    return found


def _of_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """What the environment says. Names that are not ours are left alone: others may use the prefix too."""
    found: dict[str, Any] = {key: environ.get(_variable(key)) or None for key in ("url", "app")}
    for key, (_, reader) in _WORKER.items():
        variable = _variable(f"worker.{key}")
        if text := environ.get(variable):
            found[f"worker.{key}"] = reader(_from_text(text, reader), variable)
    return found


def _variable(key: str) -> str:
    return "DAYBREAK_" + key.replace(".", "_").upper()


def _refuse_unknown(said: Mapping[str, Any], known: Any, file: str, prefix: str) -> None:
    for key in said:
        if key not in known:
            hint = closest(key, known)
            told = f"did you mean {prefix}{hint}?" if hint else f"there are {', '.join(prefix + k for k in known)}"
            raise BadInput(f"{file}: no setting named {prefix}{key!s}; {told}")


def closest(word: str, known: Any) -> str | None:
    """The known word that a misspelt one most likely means."""
    from difflib import get_close_matches  # noqa: PLC0415 - only where something is misspelt

    found = get_close_matches(word.lower(), [str(one) for one in known], n=1)
    return found[0] if found else None


# -- single settings ---------------------------------------------------------------------------------------------------

_FLAGS: Final = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def _kind(value: object) -> str:
    names = {str: "text", bool: "true or false", int: "whole number", float: "number", list: "list", dict: "table"}
    return names.get(type(value), type(value).__name__)


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise BadInput(f"{what} = {value!r}: write text, in quotes")
    return value


def _whole(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadInput(f"{what} = {value!r}: write a whole number from 1")
    return value


def _flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise BadInput(f"{what} = {value!r}: write true or false")
    return value


def _names(value: object, what: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name for name in value):
        raise BadInput(f'{what} = {value!r}: write a list of names, such as ["mail", "reports"]')
    return tuple(value)


def duration_said(value: object, what: str) -> timedelta:
    """A duration as people write it where there is no Python: in the settings, on a command line."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise BadInput(f"{what}: a bare number has no unit; write '{value}s', '{value}m' or '{value}h'")
    try:
        return duration(value, what)
    except BadInput as error:
        raise BadInput(str(error).replace(" or a timedelta", "")) from None


def _isolation(value: object, what: str) -> str:
    if value not in ("process", "thread"):
        raise BadInput(f'{what} = {value!r}: write "process" or "thread"')
    return str(value)


_UNITS: Final = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}
_SIZE: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmg]i?|)b?")


def size(value: object, what: str = "size") -> int:
    """Bytes: "512MiB", "2GB", or a number of bytes."""
    if isinstance(value, str) and (parts := _SIZE.fullmatch(value.strip().lower())):
        found = int(float(parts[1]) * _UNITS[parts[2]])
    elif isinstance(value, int) and not isinstance(value, bool):
        found = value
    else:
        raise BadInput(f"{what} = {value!r}: write a size such as '512MiB' or '2GB'")
    if found < 1:
        raise BadInput(f"{what} = {value!r}: it must be more than nothing")
    return found


def _from_text(text: str, reader: Callable[..., Any]) -> object:
    """A value of the environment, which is text, as the settings file would have it."""
    if reader is _whole:
        return int(text) if text.isascii() and text.isdigit() else text
    if reader is _flag:
        return _FLAGS.get(text.strip().lower(), text)
    if reader is _names:
        return [name.strip() for name in text.split(",")]
    return text


_WORKER: Final[dict[str, tuple[str, Callable[[object, str], Any]]]] = {
    "queues": ("queues", _names),
    "processes": ("processes", _whole),
    "async_jobs": ("async_jobs", _whole),
    "lease": ("lease_for", duration_said),
    "grace": ("grace", duration_said),
    "cancel_grace": ("cancel_grace", duration_said),
    "recycle_after": ("recycle_after", _whole),
    "memory_limit": ("memory_limit", size),
    "isolation": ("isolation", _isolation),
    "allow_commands": ("allow_commands", _flag),
    "name": ("name", _text),
}
WORKER_KEYS: Final = tuple(_WORKER)

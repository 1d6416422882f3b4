"""The settings: which store, which app, how a worker runs; and where each value came from.

command line > argument in code > environment (DAYBREAK_*) > daybreak.toml, or [tool.daybreak] in pyproject.toml
> default

The settings file is searched for from the current folder upwards. Its folder is the project folder, and relative paths
are relative to it. Without a settings file the project folder is the current folder.
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

from daybreak.core.errors import BadInput, StoreUnavailable
from daybreak.core.units import clean, duration

DEFAULT_FILE: Final = "daybreak.db"
SUFFIXES: Final = (".db", ".sqlite", ".sqlite3")
COMMAND_LINE: Final = "the command line"
IN_CODE: Final = "an argument in code"
BY_DEFAULT: Final = "the default"

TRANSPORT: Final = "sqs"  # no store, but where a remote worker gets its jobs from
_TEXTS: Final = ("url", "app", "files", "spool")
FILES_SCHEMES: Final = ("file", "s3", "gs", "az")
# The accepted schemes, and the one under which the store is known.
_SERVERS: Final = {
    "postgresql": "postgresql", "postgres": "postgresql", "redis": "redis", "rediss": "rediss", "valkey": "redis",
    "valkeys": "rediss", "redis+unix": "redis+unix", "unix": "redis+unix",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a process. `url` is the full URL of the store; `app` is a target such as `tasks.py:app`.

    `files` is where the contents of files are kept: a URL, or `store`; None is the default of the store. `spool` is the
    file that takes jobs while the store cannot be reached. `worker` holds
    the settings of workers, under the names of WorkerSettings. `alerts` is the table of that name, which
    `api/alerts/settings.py` reads. `origins` says where each value came from."""

    url: str
    folder: Path
    app: str | None = None
    files: str | None = None
    spool: Path | None = None
    worker: Mapping[str, Any] = field(default_factory=dict)
    alerts: Mapping[str, Any] = field(default_factory=dict)
    file: Path | None = None
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path | None:
        """The store's file or folder; None if the store is neither."""
        return path_of(self.url)

    @property
    def store(self) -> str:
        """The store and where its URL came from, as text for people."""
        return f"{self.path or shown(self.url)} (from {self.origins.get('url', BY_DEFAULT)})"


# -- the layers --------------------------------------------------------------------------------------------------------

_command_line: dict[str, str | None] = {}


@contextlib.contextmanager
def command_line(*, url: str | None = None, app: str | None = None) -> Iterator[None]:
    """Within this context, the options of the command line override the arguments in code, also those of apps that are
    loaded meanwhile, in any thread."""
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
    files: str | None = None,
    spool: str | None = None,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The settings from all sources; `url`, `app`, `files` and `spool` are the arguments in code."""
    environ = os.environ if environ is None else environ
    cwd = here() if cwd is None else cwd
    file, table = _find(cwd)
    folder = file.parent if file else cwd
    from_file, from_environment = _of_file(table, file), _of_environment(environ)
    layers: list[tuple[str, Mapping[str, Any]]] = [
        (COMMAND_LINE, _command_line),
        (IN_CODE, {"url": url, "app": app, "files": files, "spool": spool}),
        ("environment", from_environment),
        (str(file), from_file),
    ]
    found: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for key in (*_TEXTS, *(f"worker.{name}" for name in _WORKER)):
        for origin, layer in layers:
            value = layer.get(key)
            if value is not None:
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
        files=_files(found["files"], folder, origins["files"]) if "files" in found else None,
        spool=_spool(found["spool"], folder, origins["spool"]) if "spool" in found else None,
        worker={_WORKER[name][0]: found[f"worker.{name}"] for name in _WORKER if f"worker.{name}" in found},
        alerts=_table(table.get("alerts", {}), file, "alerts") if file else {},
        file=file,
        origins=origins,
    )


def here() -> Path:
    """The current folder."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise BadInput("the current folder was deleted: change to another folder first") from None


def from_folder(app: str, folder: Path) -> str:
    """The target with its file made absolute, relative to `folder`; a target that names a module is unchanged."""
    name, colon, attribute = app.rpartition(":")
    file = name if colon and attribute.isidentifier() and name else app
    if not file.endswith(".py"):
        return app
    return str(folder / file) + app[len(file) :]


# -- stores by URL -----------------------------------------------------------------------------------------------------


def url_of(text: str, folder: Path, origin: str = "") -> str:
    """The full URL of a store: `sqlite:////abs/jobs.db`, `postgresql://...`, `redis://...`, `dir:///abs/folder` or
    `memory://`. A relative path is relative to `folder`. `origin` says in errors where the text came from."""
    source = f" (from {origin})" if origin else ""
    if not isinstance(text, str):
        raise BadInput(
            f"{text!r}{source} is not a store: write a path such as jobs.db, or a URL such as sqlite:///jobs.db"
        )
    scheme, separator, rest = text.partition("://")
    if text == "memory://":
        return text
    if not separator:
        _refuse_missing_slashes(text, source)
        if not text.endswith(SUFFIXES):
            raise BadInput(
                f"{text!r}{source} is not a store: write a path that ends in {', '.join(SUFFIXES)}, or a URL such as "
                "sqlite:///jobs.db"
            )
        return _sqlite(text, folder, source)
    known = scheme.lower()
    if known == "sqlite":
        return _sqlite(unquote(_file_part(rest, text, source)), folder, source)
    if known == "dir":
        return _directory(rest, folder, source)
    if known in _SERVERS:
        return _server(_SERVERS[known], rest, source)
    if known == TRANSPORT:
        return _server(TRANSPORT, rest, source)
    # The error repeats only the scheme, because the rest may contain a password.
    raise BadInput(
        f"{scheme}://{source} is not a store that Daybreak knows: write sqlite:///jobs.db, "
        "postgresql://host/database, redis://host, dir://folder or memory://"
    )


def _files(text: str, folder: Path, origin: str) -> str:
    """Where contents are kept: `store`, or the full URL of a folder or a bucket."""
    if text == "store":
        return text
    scheme, separator, rest = text.partition("://") if isinstance(text, str) else ("", "", "")
    if separator and scheme in FILES_SCHEMES and rest and (scheme != "file" or rest.startswith("/")):
        return text
    if not isinstance(text, str) or separator or not text or "\0" in text:
        raise BadInput(
            f"files = {text!r:.80} (from {origin}): write a folder, such as file:///srv/daybreak-files, a bucket, such "
            "as s3://bucket/prefix, or store"
        )
    return Path(os.path.abspath(folder / Path(text).expanduser())).as_uri()  # noqa: PTH100 - links are not resolved


def _spool(text: object, folder: Path, origin: str) -> Path:
    """The path of the spool's file."""
    if not isinstance(text, str) or not text or "\0" in text or "://" in text:
        raise BadInput(f"spool = {text!r:.80} (from {origin}): write the path of a local file, such as jobs.spool")
    path = Path(os.path.abspath(folder / Path(text).expanduser()))  # noqa: PTH100 - links are not resolved
    check_path(path, f" (from {origin})")
    return path


def _refuse_missing_slashes(text: str, source: str) -> None:
    """Refuse a scheme without its slashes: taken as a path, it would name a file that nobody meant."""
    scheme, colon, rest = text.partition(":")
    known = scheme.lower()
    if colon and known == "sqlite":
        raise BadInput(f"{text!r}{source}: the URL of a file has three slashes; write sqlite:///{rest or 'jobs.db'}")
    if colon and (known in ("memory", "dir") or known in _SERVERS or known == TRANSPORT):
        # The error repeats only the scheme, because the rest may contain a password.
        raise BadInput(f"{scheme}:{source} is not the URL of a store: write {scheme}:// and what follows")


def _file_part(rest: str, text: str, source: str) -> str:
    if not rest.startswith("/"):
        raise BadInput(
            f"{text!r}{source}: the URL of a file has three slashes, sqlite:///{rest or 'jobs.db'}, "
            "and a fourth before an absolute path"
        )
    file, question, _ = rest[1:].partition("?")
    if question:
        raise BadInput(f"{text!r}{source}: a sqlite URL takes no options after '?'; write %3F if the name has one")
    return file


def _sqlite(file: str, folder: Path, source: str) -> str:
    if not file or "\0" in file:
        raise BadInput(f"{file!r}{source} names no file: write sqlite:///jobs.db")
    return "sqlite:///" + _absolute(file, folder, source)


def _directory(rest: str, folder: Path, source: str) -> str:
    text, question, options = rest.partition("?")
    path = unquote(text)
    if not path or "\0" in path:
        raise BadInput(
            f"dir://{text}{source} names no folder: write dir://jobs, or dir:///srv/jobs for an absolute path"
        )
    return "dir://" + _absolute(path, folder, source) + question + options


def _absolute(file: str, folder: Path, source: str) -> str:
    """The absolute path, quoted for a URL."""
    try:
        named = Path(file).expanduser()
    except RuntimeError:
        raise BadInput(
            f"{clean(file)!r}{source}: the home folder of {clean(Path(file).parts[0])} is unknown; "
            "write the path in full"
        ) from None
    path = Path(os.path.abspath(folder / named))  # noqa: PTH100 - symbolic links are not resolved
    check_path(path, source)
    return quote(path.as_posix(), safe="/:")


def check_path(path: Path, source: str = "") -> None:
    """Refuse a path that can never hold a store. A path that does not exist yet is accepted."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise BadInput(
            f"{clean(str(path))}{source} cannot be used: a store needs a path that is UTF-8 text; "
            "rename it, or use another path"
        ) from None
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise BadInput(
                f"{_short(str(path))}{source}: the name is longer than this system allows; use a shorter one"
            ) from None
        if error.errno == errno.ELOOP:
            raise StoreUnavailable(
                f"{path}{source} contains a symbolic link that leads back to itself: repair it, or use another path"
            ) from None


def _short(text: str, limit: int = 100) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _server(scheme: str, rest: str, source: str) -> str:
    if any(not char.isprintable() or char.isspace() for char in rest):
        raise BadInput(f"{scheme}://{source}: a URL has no spaces: write them as %20")
    try:
        urlsplit(f"{scheme}://{rest}").port  # noqa: B018 - raises if the port is not valid
    except ValueError as error:
        # The error does not repeat the URL: what looks like a port may be part of an unquoted password.
        what = "its port is not a number" if "ort" in str(error) else "it is not a URL"
        raise BadInput(
            f"{scheme}://{source}: {what}; write special characters of a password as %XX, such as %40 for @"
        ) from None
    return f"{scheme}://{rest}"


def shown(url: str) -> str:
    """A URL for people: without its password."""
    scheme, separator, rest = url.partition("://")
    rest = re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1***", rest, flags=re.IGNORECASE)
    # A password may contain a ?, a / or an @ that was not quoted, so only what looks like options counts as options.
    options = re.search(r"\?\w+=[^?]*$", rest)
    end = len(rest) if options is None else options.start()
    if "@" not in rest[:end] and "/" not in rest[:end]:
        end = len(rest)
    name, at, host = rest[:end].rpartition("@")
    if at and ":" in name:
        name = f"{name.partition(':')[0]}:***"
    return f"{scheme}{separator}{name}{at}{host}{rest[end:]}"


def path_of(url: str) -> Path | None:
    """The file or folder of a URL that `url_of` returned; None for a store that is neither."""
    if url.startswith("dir://"):
        return Path(unquote(url.removeprefix("dir://").partition("?")[0]))
    if not url.startswith("sqlite:///"):
        return None
    return Path(unquote(url.removeprefix("sqlite:///")))


# -- the settings file -------------------------------------------------------------------------------------------------


def _find(start: Path) -> tuple[Path | None, dict[str, Any]]:
    for folder in (start, *start.parents):
        own = folder / "daybreak.toml"
        if _is_usable(own, folder, start):
            return own, _read(own)
        shared = folder / "pyproject.toml"
        # A broken pyproject.toml is an error only if it mentions Daybreak.
        if _is_usable(shared, folder, start) and b"daybreak" in _bytes(shared):
            tools = _read(shared).get("tool")
            if isinstance(tools, dict) and "daybreak" in tools:
                return shared, _table(tools["daybreak"], shared, "tool.daybreak")
    return None, {}


def _is_usable(path: Path, folder: Path, start: Path) -> bool:
    """Whether a settings file can be trusted. It names code to load, so a file that another user could have put into a
    shared folder above the current one is ignored."""
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
        raise BadInput(f"{path} is not UTF-8 text: save it in UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"{path} is not valid TOML: {error}") from None


def _table(value: object, file: Path, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"{file}: {name} is a {_kind(value)}; write a table, [{name}]")
    return value


def _of_file(table: dict[str, Any], file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    _refuse_unknown(table, (*_TEXTS, "worker", "alerts"), str(file), "")
    found: dict[str, Any] = {key: _text(table[key], f"{file}: {key}") for key in _TEXTS if key in table}
    worker = _table(table.get("worker", {}), file, "worker")
    _refuse_unknown(worker, _WORKER, str(file), "worker.")
    for key, value in worker.items():
        found[f"worker.{key}"] = _WORKER[key][1](value, f"{file}: worker.{key}")
    return found


def _of_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """The settings of the environment. Unknown names are ignored: other programs may use the prefix too."""
    found: dict[str, Any] = {key: environ.get(_variable(key)) or None for key in _TEXTS}
    for key, (_, reader) in _WORKER.items():
        variable = _variable(f"worker.{key}")
        text = environ.get(variable)
        if text:
            found[f"worker.{key}"] = reader(_from_text(text, reader), variable)
    return found


def _variable(key: str) -> str:
    return "DAYBREAK_" + key.replace(".", "_").upper()


def _refuse_unknown(table: Mapping[str, Any], known: Any, file: str, prefix: str) -> None:
    for key in table:
        if key in known:
            continue
        close = closest(key, known)
        if close:
            hint = f"did you mean {prefix}{close}?"
        else:
            hint = f"the settings are {', '.join(prefix + name for name in known)}"
        raise BadInput(f"{file}: no setting named {prefix}{key!s}; {hint}")


def closest(word: str, known: Any) -> str | None:
    """The known name that is closest to a misspelt one."""
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


def duration_setting(value: object, what: str) -> timedelta:
    """A duration from the settings or from a command line, where a timedelta cannot be written."""
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
    """A number of bytes, from "512MiB", "2GB" or an integer."""
    if isinstance(value, str) and (parts := _SIZE.fullmatch(value.strip().lower())):
        found = int(float(parts[1]) * _UNITS[parts[2]])
    elif isinstance(value, int) and not isinstance(value, bool):
        found = value
    else:
        raise BadInput(f"{what} = {value!r}: write a size such as '512MiB' or '2GB'")
    if found < 1:
        raise BadInput(f"{what} = {value!r}: it must be at least 1 byte")
    return found


def _from_text(text: str, reader: Callable[..., Any]) -> object:
    """The text of an environment variable, converted to the type that the settings file would have."""
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
    "lease": ("lease_for", duration_setting),
    "grace": ("grace", duration_setting),
    "cancel_grace": ("cancel_grace", duration_setting),
    "recycle_after": ("recycle_after", _whole),
    "memory_limit": ("memory_limit", size),
    "isolation": ("isolation", _isolation),
    "allow_commands": ("allow_commands", _flag),
    "name": ("name", _text),
}
WORKER_KEYS: Final = tuple(_WORKER)

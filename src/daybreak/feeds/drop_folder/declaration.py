"""What `app.watch(...)` was given, checked."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from daybreak import config
from daybreak.core.errors import BadInput
from daybreak.core.model import Retry
from daybreak.core.units import duration, priority
from daybreak.feeds.own_queue import own_queue
from daybreak.policy.admit import check_name
from daybreak.policy.retry import parse_retry

if TYPE_CHECKING:
    from daybreak.api.app import Daybreak
    from daybreak.api.task import Task

MAX_SIZE: Final = 1024**3
SETTLE: Final = timedelta(milliseconds=500)
DONE_MARKER: Final = ".done"


class FolderWatch(Struct, frozen=True, kw_only=True):
    """One watched folder. `scope` keeps the keys of its jobs apart from those of other folders of the same task.

    `done` and `failed` are names of folders in the watched one, or absolute paths. A file whose job completed is
    deleted if `done` is None. `queue`, `priority` and `retry` are those of the task if they are None."""

    name: str
    folder: Path
    task: str
    scope: str = ""
    pattern: str = "*"
    priority: int | None = None
    done: Path | None = Path("done")
    failed: Path = Path("failed")
    settle: timedelta = SETTLE
    done_marker: str | None = None
    queue: str = ""
    retry: Retry | None = None
    max_running: int | None = 5
    capacity: int | None = 10_000
    max_size: int = MAX_SIZE
    polling: bool = False


def declare(
    folder: str | os.PathLike[str],
    task: str,
    *,
    name: str | None = None,
    pattern: str = "*",
    priority: object = None,  # noqa: A002, RUF100
    done: str | os.PathLike[str] | None = "done",
    failed: str | os.PathLike[str] = "failed",
    settle: object = SETTLE,
    done_marker: str | bool | None = None,
    queue: str | None = None,
    delete: bool = False,
    retry: Retry | int | str | None = None,
    max_running: int | None = 5,
    capacity: int | None = 10_000,
    max_size: int | str = MAX_SIZE,
    polling: bool = False,
) -> FolderWatch:
    """Parse the options of a watch. Errors show the right spelling."""
    path = Path(os.path.abspath(_text(folder, "folder")))  # noqa: PTH100 - links are resolved when it is opened
    label = path.name if name is None else name
    if not label:
        raise BadInput(f"watch({str(path)!r}): the folder has no name: add name='...'")
    check_name("watch", label)
    if not isinstance(pattern, str) or not pattern or "/" in pattern:
        raise BadInput(f"watch(pattern={pattern!r:.60}): write a pattern for file names, such as '*.json'")
    for what, limit in (("max_running", max_running), ("capacity", capacity)):
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise BadInput(f"watch({what}={limit!r:.40}): write a whole number of 1 or more, or None for no limit")
    return FolderWatch(
        name=label, folder=path, task=task, scope=name or "", pattern=pattern,
        priority=None if priority is None else _priority(priority),
        done=None if delete else _destination(done, "done"), failed=_destination(failed, "failed"),
        settle=duration(settle, "settle"), done_marker=_marker(done_marker), queue=queue or "",
        retry=None if retry is None else parse_retry(retry), max_running=max_running, capacity=capacity,
        max_size=config.size(max_size), polling=polling,
    )  # fmt: skip


_priority = priority


def add_watch(app: Daybreak, folder: str | os.PathLike[str], task: Task[..., Any] | str, **options: Any) -> FolderWatch:
    """Declare a watch of an app: `app.watch`."""
    found = app.find_task(task if isinstance(task, str) else getattr(task, "name", str(task)))
    if not found.definition.parameters:
        raise BadInput(
            f"watch: task {found.name!r} takes no argument; it needs one for the file: def {found.name}(file: File)"
        )
    watch = declare(folder, found.name, **options)
    if not watch.queue:
        watch = replace(watch, queue=own_queue(found))
    for other in app.watches:
        if other.name == watch.name:
            raise BadInput(
                f"two watches are named {watch.name!r}: give one of them another name with watch(name='...')"
            )
    app.watches.append(watch)
    app.program.fed_queues.append(watch.queue)
    return watch


def _text(path: object, what: str) -> str:
    try:
        text = os.fspath(path)  # type: ignore[call-overload]
    except TypeError:
        text = b""
    if not isinstance(text, str) or not text or "\0" in text:
        raise BadInput(f"watch({what}={path!r:.60}): write the path of a folder, such as 'reports'")
    return text


def _destination(path: object, what: str) -> Path:
    if path is None:
        raise BadInput(f"watch({what}=None): name a folder; to delete files whose job completed, write delete=True")
    found = Path(_text(path, what))
    if not found.is_absolute() and (len(found.parts) != 1 or found.name in ("", ".", "..")):
        raise BadInput(f"watch({what}={str(found)!r}): write one name, for a folder in the watched one, or a full path")
    return found


def _marker(marker: object) -> str | None:
    if marker is None or marker is False:
        return None
    if marker is True:
        return DONE_MARKER
    if not isinstance(marker, str) or not marker.startswith(".") or "/" in marker or len(marker) < 2:
        raise BadInput(f"watch(done_marker={marker!r:.40}): write the suffix of the marker, such as '.done', or True")
    return marker

"""PersistentQueue: a MemoryQueue whose items are files that `ls` shows and that survive a crash."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from daybreak.core.errors import BadInput
from daybreak.core.metadata import decode_meta, encode_meta
from daybreak.core.model import Job, Put
from daybreak.store.protocol import Verdict
from daybreak.stores.memory import MemoryStore
from pywats_queue.queue.conversion import Content, content_of, stored_attempts
from pywats_queue.queue.errors import QueueError
from pywats_queue.queue.hooks import QueueHooks
from pywats_queue.queue.item_store import BY, ItemStore
from pywats_queue.queue.items import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, QueueItem
from pywats_queue.queue.memory import MemoryQueue
from pywats_queue.queue.stats import QueueStats

from .folders import folder_of
from .report_files import as_plain, from_args, to_args, to_json

CHANGED: Final = "pywats_queue item"  # records with the content of items that was changed after add()
LONGEST_ID: Final = 200
ITEM_ID: Final = "item_id"  # the metadata that keeps an id which cannot be that of a job


class PersistentQueue(MemoryQueue):
    """Items as files in `queue_dir`: `{id}.{status}.wsjf` and `{id}.{status}.meta.json`.

    A new queue reads the folder: PROCESSING items are PENDING again with their attempt counted, SUSPENDED and FAILED
    ones stay, COMPLETED ones are deleted with `delete_completed`. With `auto_load=False` the queue seems empty until
    `load()` or the first `add`. Several queues of one process may use one folder. A new one takes back what the others
    were processing, and their updates of these items are refused. Another process is refused the folder."""

    def __init__(
        self,
        queue_dir: str | os.PathLike[str],
        max_size: int | None = None,
        default_max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        delete_completed: bool = True,
        auto_load: bool = True,
        hooks: QueueHooks | None = None,
    ) -> None:
        self._queue_dir = Path(queue_dir)
        self._queue_dir.mkdir(parents=True, exist_ok=True)
        self._delete_completed = delete_completed
        self._folder = folder_of(self._queue_dir)
        self._unread: ItemStore | None = None if auto_load else ItemStore(MemoryStore())
        super().__init__(max_size, default_max_attempts, hooks)

    def _open(self) -> None:
        if self._unread is None:
            self.load()

    def load(self) -> None:
        """Read the folder, as a new queue on it does."""
        store = self._folder.load(delete_completed=self._delete_completed)
        self._unread = None
        store.set_limits(capacity=self._max_size)
        for record in store.call(store.store.records(CHANGED)):
            if store.job(record.name) is None:  # a crash came between the end of the item and the end of this record
                self._put_changed(record.name, None)

    @property
    def _store(self) -> ItemStore:
        if self._unread is not None:
            return self._unread
        return self._folder.items or self._reopened()

    def _reopened(self) -> ItemStore:
        self.load()
        assert self._folder.items is not None
        return self._folder.items

    @property
    def queue_dir(self) -> Path:
        return self._queue_dir

    def add(
        self,
        data: Any,
        item_id: str | None = None,
        priority: int = DEFAULT_PRIORITY,
        max_attempts: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> QueueItem:
        """Add an item. Its files are on disk, safe from a power cut, when this returns."""
        if self._unread is not None:
            self.load()
        return super().add(data, item_id, priority, max_attempts, metadata)

    @property
    def stats(self) -> QueueStats:
        """How many items there are in each status. With `delete_completed`, all that were ever completed count."""
        stats = super().stats
        if self._delete_completed:
            stats.completed = self._store.completed_ever()
        return stats

    def close(self) -> None:
        """Release the folder for other processes. Using a queue on it again opens it again."""
        self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- how an item's own content is kept -----------------------------------------------------------------------------

    def _job_id(self, item_id: str) -> str:
        """The id of the item's job. A very long id, or one with control characters, is replaced by a digest."""
        is_plain = len(item_id) <= LONGEST_ID and not any(unicodedata.category(c) in ("Cc", "Cs") for c in item_id)
        if item_id and is_plain:
            return item_id
        return "item~" + hashlib.sha256(item_id.encode("utf-8", "surrogatepass")).hexdigest()

    def _insert(self, item: QueueItem) -> Verdict:
        job_id = self._job_id(item.id)
        named = {} if job_id == item.id else {ITEM_ID: item.id}
        try:
            meta = encode_meta({**item.metadata, **named})
        except BadInput as error:
            raise QueueError(f"item {item.id}: {error}") from None
        args = to_args(to_json(f"item {item.id}", item.data))
        return self._store.add(job_id, args, priority=item.priority, max_attempts=item.max_attempts, meta=meta)

    def _content(self, job: Job) -> Content:
        changed = self._changed(job.id)
        if changed is not None:
            return Content(**changed)
        metadata = decode_meta(job.spec.meta)
        item_id = metadata.pop(ITEM_ID, job.id)
        return Content(item_id, from_args(job.spec.args), metadata, stored_attempts(job))

    def _keep(self, item: QueueItem, job: Job) -> None:
        """Keep what the caller changed of the content. The files of the item show what it was added with."""
        content = to_json(f"item {item.id}", content_of(item)._replace(data=as_plain(item.data))._asdict())
        if content != to_json(f"item {item.id}", self._content(job)._asdict()):
            self._put_changed(job.id, content)

    def _forget(self, job: Job) -> None:
        if self._changed(job.id) is not None:
            self._put_changed(job.id, None)

    def _changed(self, job_id: str) -> dict[str, Any] | None:
        records = self._store.call(self._store.store.records(CHANGED, job_id))
        return msgspec.json.decode(records[0].value) if records else None

    def _put_changed(self, job_id: str, value: bytes | None) -> None:
        self._store.call(self._store.store.put([Put(kind=CHANGED, name=job_id, value=value, by=BY)]))

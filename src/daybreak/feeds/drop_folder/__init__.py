"""A drop folder: every complete file that other programs put into it becomes one job.

| module | what it holds |
|---|---|
| `declaration` | what `app.watch(...)` was given, checked |
| `folder_handle` | one open folder: everything in it is reached relative to its descriptor, and no link is followed |
| `entry_name` | what a name says: priority, sidecar, marker, leftover of the old format |
| `entry` | one file, opened safely, hashed from its descriptor |
| `sidecar` | priority and metadata in `NAME.meta.json` |
| `folder_scan` | lists the files that may be taken, the most urgent ones first, bounded |
| `settle_check` | which of them have stopped changing |
| `arrivals` | wake-ups by the operating system, with a fallback to polling |
| `acceptance` | makes one job per file; the store decides |
| `endings` | what becomes of a file, by how its job ended |
| `destinations` | moves and deletes files safely |
| `reports` | says once what was left alone, and why |
| `watch_lock` | one active watcher per folder and machine |
| `watch_record` | pause, resume and status, kept in the store |
| `watcher` | the loop |
"""

from daybreak.feeds.drop_folder.declaration import FolderWatch
from daybreak.feeds.drop_folder.watcher import FolderWatcher

__all__ = ["FolderWatch", "FolderWatcher"]

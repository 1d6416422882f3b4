"""The directory store: the memory store, and a journal and files that keep it on disk.

store           the seam: every operation is journalled before it is answered
tracked_book    the memory store's data, which notes what each operation changes; changes: those as after-images
entry           a job as the folder keeps it
persistence     how state file, journal and job files follow the data; journal, job_files, metadata: each of them
recovery        loads a folder; folder_scan: reads its files; foreign_items: those of the original pyWATS queue;
                renamed_jobs: what a person changed by renaming files
layout          the words and suffixes of file names; file_names: safe names for ids
owner_lock      one process at a time; disk: the port to the file system; faults: its errors; examine: for doctor
"""

from daybreak.stores.directory.layout import DAYBREAK, LAYOUTS, WATS, Layout
from daybreak.stores.directory.store import DirectoryStore

__all__ = ["DAYBREAK", "LAYOUTS", "WATS", "DirectoryStore", "Layout"]

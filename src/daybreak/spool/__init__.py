"""The offline spool: jobs that wait in a local file until the store can be reached.

| module | what it holds |
|---|---|
| `spool_file` | the file: jobs in the order of their submits, those set aside, and its status |
| `file_thread` | the thread in which coroutines use the file |
| `forward_lock` | one process at a time forwards |
| `forwarder` | sends the jobs to the store, once and in order, with their files |"""

from daybreak.spool.forwarder import Forwarder, Target
from daybreak.spool.spool_file import SpooledJob, SpoolFile, SpoolStatus

__all__ = ["Forwarder", "SpoolFile", "SpoolStatus", "SpooledJob", "Target"]

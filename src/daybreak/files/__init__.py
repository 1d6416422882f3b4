"""Files kept beside the jobs: inputs that are pinned, outputs, large results.

Each content is stored once, under its sha256 digest, in one of three places: a folder (`folder.py`; the default beside
a SQLite file), a bucket (`bucket.py`), or in parts in the store itself (`store_blobs.py`). `place.py` chooses.
`FileStore` is the async face of all three, `collector.py` deletes what no job refers to any more.
"""

from daybreak.files.blobs import BlobInfo, Blobs
from daybreak.files.file_store import FileStore
from daybreak.files.place import blobs_at, open_blobs

__all__ = ["BlobInfo", "Blobs", "FileStore", "blobs_at", "open_blobs"]

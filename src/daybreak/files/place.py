"""Where the contents of a store are: the setting `files`, else a folder beside a SQLite file, else the store itself."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from daybreak import config
from daybreak.core.errors import BadInput
from daybreak.core.model import Put
from daybreak.files.blobs import Blobs
from daybreak.files.folder import FolderBlobs
from daybreak.store.protocol import Store

KIND: Final = "files"  # the record with the name under which this store keeps its contents in a shared place
IN_STORE: Final = "store"


async def open_blobs(setting: str | None, store_url: str, store: Store) -> Blobs | None:
    """The place of a store's contents; None if they are in the store itself.

    In a place that several stores may share, each store has a part of its own, named by a record: what one store no
    longer needs, another may."""
    if setting is None:
        path = config.path_of(store_url)
        return None if path is None else FolderBlobs(path.with_name(f"{path.name}-files"))
    if setting == IN_STORE:
        return None
    return blobs_at(f"{setting.rstrip('/')}/{await _own_part(store)}")


async def _own_part(store: Store) -> str:
    while True:
        found = await store.records(KIND, "part")
        if found:
            return found[0].value.decode()
        await store.put([Put(kind=KIND, name="part", value=secrets.token_hex(8).encode(), expect=0)])


def blobs_at(location: str) -> Blobs:
    """The place with this URL."""
    scheme = location.partition("://")[0]
    if scheme == "file":
        return FolderBlobs(Path(url2pathname(unquote(urlsplit(location).path))))
    if scheme in config.FILES_SCHEMES:
        from daybreak.files.bucket import BucketBlobs  # noqa: PLC0415 - needs obstore

        return BucketBlobs(location)
    raise BadInput(f"files = {location!r}: write file:///folder, s3://bucket/prefix, or store")

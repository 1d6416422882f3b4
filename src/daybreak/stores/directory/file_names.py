"""The names of files for the ids of jobs. No id can name a file outside the folder, and every id has a bounded name."""

from __future__ import annotations

import hashlib
import re
from typing import Final
from urllib.parse import unquote_to_bytes

MAX_STEM: Final = 120  # bytes; the word, the suffix and a temporary ending must fit into the 255 of a file name
KEPT_OF_A_LONG_ID: Final = 60
_SAFE: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.+=@,()")
_HASHED: Final = re.compile(r"~[0-9a-f]{32}$")


def stem_of(job: str) -> str:
    """The first part of a job's file names: its id, with every byte escaped as %XX that is not safe in a name. The stem
    of a long id ends in a hash of the id."""
    stem = _escaped(job)
    return stem if len(stem) <= MAX_STEM and job else hashed_stem_of(job)


def hashed_stem_of(job: str) -> str:
    """The stem of an id whose plain stem is too long, or differs from that of another job only in upper and lower case,
    which some file systems do not tell apart."""
    digest = hashlib.sha256(job.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{_escaped(job)[:KEPT_OF_A_LONG_ID]}~{digest}"


def is_stem_of(stem: str, job: str) -> bool:
    """Whether files of this stem may belong to this job."""
    return stem in (stem_of(job), hashed_stem_of(job))


def id_of(stem: str) -> str | None:
    """The id that a plain stem stands for; None if only the metadata can tell."""
    if _HASHED.search(stem):
        return None
    return unquote_to_bytes(stem).decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode()


def _escaped(job: str) -> str:
    encoded = job.encode("utf-8", "surrogatepass")
    text = "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in encoded)
    return f"%2E{text[1:]}" if text.startswith(".") else text

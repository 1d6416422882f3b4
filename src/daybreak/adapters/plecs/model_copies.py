"""Copies of model files under names that have the digest of their content.

PLECS knows models by name alone: of two files with one name it would go on with the first. And a file that is changed
while a sweep runs would change the model in its midst."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path

from daybreak.core.errors import BadInput


def copy_by_content(path: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> Path:
    """A copy of the file, named by its content, in `folder`; by default in one of this user for temporary files. A copy
    that is there already is used, if its content is right; so is a file that is such a copy itself."""
    content = Path(path).read_bytes()
    name = name_by_content(path, content)
    if folder is None and Path(path).name == f"{name}.plecs":
        return Path(path).absolute()
    copy = _own_folder(folder) / f"{name}.plecs"
    if not copy.exists() or copy.read_bytes() != content:
        _write_whole(copy, content)
    return copy


def name_by_content(path: str | os.PathLike[str], content: bytes) -> str:
    """The name of a model with this content."""
    word, digest = re.sub(r"\W", "_", Path(path).stem), hashlib.sha256(content).hexdigest()[:16]
    return word if word.endswith(f"_{digest}") else f"{word}_{digest}"


def _own_folder(folder: str | os.PathLike[str] | None) -> Path:
    """A folder that nobody else can write to: PLECS will run what is in it."""
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        return Path(folder).absolute()
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    own = Path(tempfile.gettempdir()) / f"daybreak-plecs-{user}"
    own.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and (own.stat().st_uid != os.getuid() or own.stat().st_mode & 0o022):
        raise BadInput(f"{own} can be written by others: remove it, or name a folder of your own")
    return own


def _write_whole(path: Path, content: bytes) -> None:
    """Nobody ever sees a part of the file, whoever else writes it at the same time; it is durable when this returns."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise

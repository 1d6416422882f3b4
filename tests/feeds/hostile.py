"""Entries that must be left alone, for any drop folder."""

from __future__ import annotations

import os
import socket
from pathlib import Path

BIG = 64 * 1024 * 1024


def make_hostile(folder: Path, outside: Path) -> list[bytes]:
    """Put one of every hostile kind into the folder. Returns their names."""
    secret = outside / "secret.json"
    secret.write_text("nobody may read this")
    (outside / "others").mkdir()
    (outside / "others" / "theirs.json").write_text("somebody else's")
    at = os.fsencode(folder) + b"/"
    os.symlink(secret, at + b"link.json")
    os.symlink("../outside/secret.json", at + b"relative-link.json")
    os.symlink("nowhere.json", at + b"dangling.json")
    os.symlink("loop.json", at + b"loop.json")
    os.symlink(outside / "others", at + b"folder-link.json")
    os.symlink(outside / "others", at + b"high")  # the name of a priority
    os.mkfifo(at + b"fifo.json")
    os.mkdir(at + b"folder.json")
    (folder / "folder.json" / "inside.json").write_text("not a drop")
    os.mkdir(at + b"other")
    (folder / "other" / "deep.json").write_text("not a drop")
    listener = socket.socket(socket.AF_UNIX)
    here = os.open(folder, os.O_RDONLY)
    try:
        listener.bind(f"/proc/self/fd/{here}/socket.json")  # the path of a test's folder may be too long
    finally:
        os.close(here)
        listener.close()
    with open(at + b"huge.json", "wb") as huge:
        huge.truncate(BIG)  # sparse
    names = [
        b"new\nline.json", b"escape\x1b[31mred.json", b"not\xffutf8.json", b"bell\x07.json", b"tab\t.json",
        b"bidi\xe2\x80\xaetxt.json",
    ]  # fmt: skip
    for name in names:
        with open(at + name, "wb") as file:
            file.write(b"named to deceive")
    made = [
        b"link.json", b"relative-link.json", b"dangling.json", b"loop.json", b"folder-link.json", b"high", b"fifo.json",
        b"folder.json", b"other", b"socket.json", b"huge.json", *names,
    ]  # fmt: skip
    if os.geteuid() == 0:
        os.mknod(at + b"device.json", 0o20666, os.makedev(1, 5))  # /dev/zero: reading it would never end
        made.append(b"device.json")
    else:
        (folder / "locked.json").write_text("unreadable")
        (folder / "locked.json").chmod(0)
        made.append(b"locked.json")
    return made

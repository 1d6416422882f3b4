"""Wake-up between processes: who waits has a datagram socket in a folder beside the file; who commits writes to each.

A datagram may be lost (a full buffer, a dead socket): behind it stands a slow look at the file's data version."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from uuid import uuid4

from daybreak.stores.wakeups import ANY
from daybreak.system import platform

LONGEST = 8000
BUSY = 0.005  # seconds between two datagrams

_wakes: weakref.WeakSet[Wake] = weakref.WeakSet()


class Wake:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._where = str(folder)
        self._name = f"{os.getpid()}-{uuid4().hex[:8]}"
        self._sender: socket.socket | None = None
        self._receiver: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._folder_fd: int | None = None
        self._seen_at = -1
        self._heard_at = 0.0
        self._peers: list[tuple[str, str]] = []  # name and address
        if platform.HAS_DATAGRAMS:
            self._sender = platform.datagram_socket()
        _wakes.add(self)

    def _address(self, name: str) -> str:
        """A socket's address; short also when the folder's path is longer than an address may be."""
        path = str(self._folder / name)
        if len(path.encode()) < 100:
            return path
        if self._folder_fd is None:
            self._folder_fd = os.open(self._folder, os.O_RDONLY)
        return f"/proc/self/fd/{self._folder_fd}/{name}"

    def listen(self, heard: Callable[[Iterable[str]], None]) -> bool:
        """Be woken from now on; False where that is not possible and only the slow look remains."""
        if self._sender is None:
            return False
        if self._receiver is not None:
            if self._loop is not None and self._loop.is_running():
                return True
            self.stop_listening()  # the loop that listened is gone
        receiver = platform.datagram_socket()
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            receiver.bind(self._address(self._name))
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(receiver.fileno(), self._hear, receiver, heard)
        except (OSError, NotImplementedError):
            receiver.close()
            return False
        self._receiver = receiver
        return True

    def _hear(self, receiver: socket.socket, heard: Callable[[Iterable[str]], None]) -> None:
        """Where little is said, one at a time: a look for more that finds nothing costs a job on its way to an idle
        worker as much as hearing of it. Where much is, all that came."""
        before, self._heard_at = self._heard_at, time.monotonic()
        is_busy = self._heard_at - before < BUSY
        topics: set[str] = set()
        with contextlib.suppress(BlockingIOError):
            topics.update(receiver.recv(LONGEST).decode().split("\n"))
            while is_busy:
                topics.update(receiver.recv(LONGEST).decode().split("\n"))
        heard(topics)

    def send(self, topics: Iterable[str]) -> None:
        """Tell every process that waits. Never blocks and never fails: the slow look makes up for what is lost."""
        sender = self._sender
        if sender is None or not (peers := self._look()):
            return
        message = "\n".join(topics).encode()
        if len(message) > LONGEST:
            message = ANY.encode()
        for peer, address in peers:
            try:
                sender.sendto(message, address)
            except BlockingIOError:
                pass  # it has enough to read already
            except (ConnectionRefusedError, FileNotFoundError):
                # Bound by a process that is dead: its socket is litter.
                with contextlib.suppress(OSError):
                    (self._folder / peer).unlink()
            except OSError:
                pass

    def _look(self) -> list[tuple[str, str]]:
        try:
            changed_at = os.stat(self._where).st_mtime_ns  # noqa: PTH116 - at every commit, and a Path takes its time
            if changed_at != self._seen_at:
                names = os.listdir(self._folder)  # noqa: PTH208
                self._peers = [(name, self._address(name)) for name in names if name != self._name]
                self._seen_at = changed_at
        except OSError:
            return []
        return self._peers

    def stop_listening(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(receiver.fileno())
        receiver.close()
        with contextlib.suppress(OSError):
            (self._folder / self._name).unlink()

    def close(self) -> None:
        self.stop_listening()
        self._close()

    def leave(self) -> None:
        """In a forked child: close what was inherited. The address, and its place in the loop, are the parent's."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.close()
        self._close()

    def _close(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()
        if self._folder_fd is not None:
            os.close(self._folder_fd)
            self._folder_fd = None


def _after_fork() -> None:
    for wake in list(_wakes):
        wake.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

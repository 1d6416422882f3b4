"""Wake-ups between processes. A process that waits binds a datagram socket in a folder beside the database; a process
that commits sends a datagram to each of them.

A datagram may be lost (a full buffer, a dead socket), so a process that waits also polls the file's data version."""

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

MAX_MESSAGE_BYTES = 8000
BUSY_GAP = 0.005  # seconds; datagrams that come closer together are read in one go

_wakes: weakref.WeakSet[Wake] = weakref.WeakSet()


class Wake:
    """The sockets of one store in one process: one to receive wake-ups, one to send them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder_path = str(folder)
        self._name = f"{os.getpid()}-{uuid4().hex[:8]}"
        self._sender: socket.socket | None = None
        self._receiver: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._folder_fd: int | None = None
        self._peers_read_at = -1  # the folder's mtime when `_peers` was read
        self._received_at = 0.0
        self._peers: list[tuple[str, str]] = []  # socket name and address
        if platform.HAS_DATAGRAMS:
            self._sender = platform.datagram_socket()
        _wakes.add(self)

    def _address(self, name: str) -> str:
        """The address of a socket in the folder. It is short even if the folder's path is longer than an address may
        be."""
        path = str(self._folder / name)
        if len(path.encode()) < 100:
            return path
        if self._folder_fd is None:
            self._folder_fd = os.open(self._folder, os.O_RDONLY)
        return f"/proc/self/fd/{self._folder_fd}/{name}"

    def listen(self, on_topics: Callable[[Iterable[str]], None]) -> bool:
        """Receive wake-ups on the running loop from now on. False where that is not possible: then only polling is
        left."""
        if self._sender is None:
            return False
        if self._receiver is not None:
            if self._loop is not None and self._loop.is_running():
                return True
            self.stop_listening()  # the loop that listened has ended
        receiver = platform.datagram_socket()
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            receiver.bind(self._address(self._name))
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(receiver.fileno(), self._receive, receiver, on_topics)
        except (OSError, NotImplementedError):
            receiver.close()
            return False
        self._receiver = receiver
        return True

    def _receive(self, receiver: socket.socket, on_topics: Callable[[Iterable[str]], None]) -> None:
        """Read one datagram, or all that have arrived if they come in quick succession. Trying for a second one that is
        not there would delay a job on its way to an idle worker as much as the first read does."""
        before, self._received_at = self._received_at, time.monotonic()
        is_busy = self._received_at - before < BUSY_GAP
        topics: set[str] = set()
        with contextlib.suppress(BlockingIOError):
            topics.update(receiver.recv(MAX_MESSAGE_BYTES).decode().split("\n"))
            while is_busy:
                topics.update(receiver.recv(MAX_MESSAGE_BYTES).decode().split("\n"))
        on_topics(topics)

    def send(self, topics: Iterable[str]) -> None:
        """Wake every process that waits. Never blocks and never raises: polling makes up for lost datagrams."""
        sender = self._sender
        if sender is None:
            return
        peers = self._read_peers()
        if not peers:
            return
        message = "\n".join(topics).encode()
        if len(message) > MAX_MESSAGE_BYTES:
            message = ANY.encode()
        for peer, address in peers:
            try:
                sender.sendto(message, address)
            except BlockingIOError:
                pass  # its buffer is full, so it will wake up anyway
            except (ConnectionRefusedError, FileNotFoundError):
                # The process that bound it is dead: remove its socket.
                with contextlib.suppress(OSError):
                    (self._folder / peer).unlink()
            except OSError:
                pass

    def _read_peers(self) -> list[tuple[str, str]]:
        try:
            # os.stat, not Path.stat, which is slower: this runs at every commit.
            changed_at = os.stat(self._folder_path).st_mtime_ns  # noqa: PTH116
            if changed_at != self._peers_read_at:
                names = os.listdir(self._folder)  # noqa: PTH208
                self._peers = [(name, self._address(name)) for name in names if name != self._name]
                self._peers_read_at = changed_at
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
        """Close the inherited sockets in a forked child. The address and the loop's reader belong to the parent."""
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

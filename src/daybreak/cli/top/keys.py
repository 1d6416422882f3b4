"""Reads single keys from a terminal, without Enter. Without a terminal no key is ever pressed."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator

QUIT = frozenset({"q", "Q", "\x03", "\x1b"})

if sys.platform == "win32":
    import msvcrt

    @contextlib.contextmanager
    def quitting() -> Iterator[asyncio.Event]:
        pressed = asyncio.Event()

        async def poll() -> None:
            while not pressed.is_set():
                if msvcrt.kbhit() and msvcrt.getwch() in QUIT:
                    pressed.set()
                await asyncio.sleep(0.1)

        polling = asyncio.get_running_loop().create_task(poll())
        try:
            yield pressed
        finally:
            polling.cancel()
else:
    import os
    import termios
    import tty

    @contextlib.contextmanager
    def quitting() -> Iterator[asyncio.Event]:
        """An event that is set when q is pressed. The terminal settings are restored at the end."""
        pressed = asyncio.Event()
        if sys.stdin is None or not sys.stdin.isatty():
            yield pressed
            return
        fd = sys.stdin.fileno()
        before = termios.tcgetattr(fd)
        loop = asyncio.get_running_loop()

        def read() -> None:
            try:
                data = os.read(fd, 64)
            except OSError:  # the terminal was closed
                data = b""
            # Arrow keys and the like arrive as escape sequences of several characters: only a single character counts.
            if not data or data.decode("utf-8", "replace") in QUIT:
                pressed.set()

        tty.setcbreak(fd)
        loop.add_reader(fd, read)
        try:
            yield pressed
        finally:
            loop.remove_reader(fd)
            with contextlib.suppress(termios.error):
                termios.tcsetattr(fd, termios.TCSADRAIN, before)

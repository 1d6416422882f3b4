"""Single keys from a terminal, without Enter; where there is none, no key is ever pressed."""

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

        async def look() -> None:
            while not pressed.is_set():
                if msvcrt.kbhit() and msvcrt.getwch() in QUIT:
                    pressed.set()
                await asyncio.sleep(0.1)

        looking = asyncio.get_running_loop().create_task(look())
        try:
            yield pressed
        finally:
            looking.cancel()
else:
    import os
    import termios
    import tty

    @contextlib.contextmanager
    def quitting() -> Iterator[asyncio.Event]:
        """An event that is set when q is pressed. The terminal is put back as it was."""
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
            except OSError:  # the terminal was closed: nobody looks any more
                data = b""
            # Arrow keys and the like come as escape sequences, several characters at once: only a lone key counts.
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

"""Makes recordings: sentences, spoken by espeak-ng."""

import random
import subprocess
from pathlib import Path

VOICE = "en-us+f3"
WHAT = ("the pump", "the motor", "the window", "the battery", "the engine")
STATE = ("is ready", "is broken", "is open", "needs repair")
PLACE = ("in building", "on floor")
NUMBER = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SINCE = ("since yesterday", "this morning", "until friday")


def sentences(number: int, seed: int = 4) -> list[str]:
    choose = random.Random(seed).choice  # noqa: S311 - no secret
    return [" ".join(choose(words) for words in (WHAT, STATE, PLACE, NUMBER, SINCE)) for _ in range(number)]


def spoken(text: str, path: Path) -> bytes:
    """The audio of a text, as a WAV file."""
    words = ["espeak-ng", "-v", VOICE, "-s", "140", "-w", str(path), text]
    subprocess.run(words, check=True, capture_output=True)  # noqa: S603
    return path.read_bytes()

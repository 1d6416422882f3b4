"""The layout: by which words and suffixes the files of a job are named.

`{id}.{word}.{suffix}` holds the data of a job, its arguments; `{id}.{word}.meta.json` holds everything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from daybreak.core.errors import BadInput
from daybreak.core.model import JobSpec, State

META_SUFFIX: Final = "meta.json"
ITEM_TASK: Final = "item"  # the task of the items of a queue
_BEFORE, _AFTER = b'{"data":', b"}"  # how an item's data stands in its arguments


class FileName(NamedTuple):
    """The parts of the name of a job's file."""

    stem: str
    word: str
    is_meta: bool


class Layout(Struct, frozen=True, kw_only=True):
    """`words` gives the words of states, by default their own names; several states may share one. With `raw_items`,
    the data file of a queue's item holds the item's data itself instead of the arguments around it."""

    name: str = "daybreak"
    data_suffix: str = "json"
    words: dict[State, str] = {}
    raw_items: bool = False

    def __post_init__(self) -> None:
        force_setattr(self, "words", {state: self.words.get(state, state.value) for state in State})
        parts = [*self.words.values(), *self.data_suffix.split(".")]
        bad = [part for part in parts if not (part.isascii() and part.isalnum()) or part == "meta"]
        if bad:
            raise BadInput(
                f"layout {self.name!r}: words and suffixes consist of letters and digits, and `meta` is taken; "
                f"not usable: {', '.join(map(repr, bad))}"
            )

    def data_name(self, stem: str, word: str) -> str:
        return f"{stem}.{word}.{self.data_suffix}"

    def meta_name(self, stem: str, word: str) -> str:
        return f"{stem}.{word}.{META_SUFFIX}"

    def parse(self, name: str) -> FileName | None:
        """The parts of a file's name; None if it is not the file of a job. The word may be an unknown one."""
        if name.startswith("."):
            return None
        for suffix, is_meta in ((META_SUFFIX, True), (self.data_suffix, False)):
            if name.endswith("." + suffix):
                stem, dot, word = name[: -len(suffix) - 1].rpartition(".")
                return FileName(stem, word, is_meta) if dot and stem else None
        return None

    def states(self, word: str) -> frozenset[State]:
        """The states that a word stands for; none if it is unknown."""
        return frozenset(state for state, its_word in self.words.items() if its_word == word)

    def data_of(self, spec: JobSpec) -> tuple[bytes, bool]:
        """The content of a job's data file, and whether it is an item's raw data."""
        if self.raw_items and spec.task == ITEM_TASK:
            raw = spec.args[len(_BEFORE) : -len(_AFTER)]
            if spec.args.startswith(_BEFORE) and spec.args.endswith(_AFTER) and is_json(raw):
                return raw, True
        return spec.args, False

    @staticmethod
    def args_of(data: bytes, *, is_raw: bool) -> bytes:
        """The arguments of a job whose data file has this content."""
        return _BEFORE + data + _AFTER if is_raw else data


def is_json(data: bytes) -> bool:
    """Whether these bytes are one JSON value."""
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


DAYBREAK: Final = Layout()
WATS: Final = Layout(
    name="wats",
    data_suffix="wsjf",
    words={
        State.SCHEDULED: "pending", State.BLOCKED: "pending", State.QUEUED: "pending", State.RUNNING: "processing"
    },
    raw_items=True,
)  # fmt: skip
LAYOUTS: Final[Mapping[str, Layout]] = {layout.name: layout for layout in (DAYBREAK, WATS)}

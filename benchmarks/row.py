"""What a row and a goal are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Side = Literal["raw", "peer", "ours"]


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What the design's table asks for.

    `of` says of what: the row's own figure, the ratio to the best durable peer, or a part of what the case told. A
    ratio may also be to one `peer` (its name in the row's), or to the row that `than` names; of a `part` that both
    told, where one is named."""

    must: float
    aim: float
    of: str = "ratio"
    unit: str = "x"
    at_most: bool = False
    peer: str = ""
    than: str = ""
    part: str = ""


def of_figure(must: float, aim: float, unit: str, at_most: bool = False, of: str = "figure") -> Goal:
    return Goal(must=must, aim=aim, of=of, unit=unit, at_most=at_most)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One case, run in a process and a directory of its own.

    `yardstick` is the raw row with as many jobs per durable commit, by which a loss of speed is told from a slow disk.
    `against` names the figure of the peers that the row is held against; `work` and `options` say what
    the child runs, `unit` what its figure is counted in. `rounds` is how often it runs at most: what takes long and is
    held against nobody's figure of the same round need not run in every one. `needs` are modules, and programs where a
    name starts with a slash; `apart` is the environment of its own that a peer needs.
    """

    name: str
    side: Side
    work: str
    jobs: int
    options: dict[str, int]
    store: str = ""
    unit: str = "/s"
    rounds: int | None = None
    yardstick: str | None = None
    against: str | None = None
    goals: tuple[Goal, ...] = ()
    needs: tuple[str, ...] = ()
    apart: str = ""
    says: str = ""

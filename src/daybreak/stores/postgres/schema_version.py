"""The schema that this program knows, and the oldest program that can use it."""

from __future__ import annotations

from itertools import groupby
from typing import Final, NamedTuple

from daybreak.stores.postgres.statements import Statements


class SchemaVersion(NamedTuple):
    """The schema that a program knows. The scripts of each version migrate a database from the version before.

    `needs` is the version of the oldest program that can work on this schema: the version before, unless a change
    forbids it. A function that changes gets a new number at the end of its name; the old one stays for as long as
    programs that call it may work here."""

    scripts: tuple[tuple[str, ...], ...]
    needs: int

    @property
    def number(self) -> int:
        return len(self.scripts)


def _scripts() -> tuple[tuple[str, ...], ...]:
    """The files 0001.sql, 0001-exchange_1.sql, ... by version."""
    migrations = Statements("migrations")
    versions = groupby(migrations.names(), key=lambda name: name.partition("-")[0])
    return tuple(tuple(migrations.text(name) for name in names) for _, names in versions)


CURRENT: Final = SchemaVersion(_scripts(), needs=1)

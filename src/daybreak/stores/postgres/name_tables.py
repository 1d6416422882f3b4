"""Idempotency keys and unique names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from daybreak.stores.kernel.port import KeyEntry, NameChange, NameKind, NewKey
from daybreak.stores.kernel.row import Row
from daybreak.stores.postgres.arrays import Bigints, Texts
from daybreak.stores.postgres.statement_transaction import StatementTransaction

LOCK_CLASSES: Final[dict[NameKind, int]] = {"key": 0x44424B, "unique": 0x44424E, "record": 0x444252, "flight": 0x444246}


class NameTables(StatementTransaction):
    """The tables `idem` and `uniq`, and the locks of names."""

    def lock_names(self, kind: NameKind, names: Iterable[str]) -> None:
        if wanted := list(names):
            statement = self.sql.lock_flights if kind == "flight" else self.sql.lock_names
            self.rows(statement, (LOCK_CLASSES[kind], Texts(wanted)))

    def read_keys(self, keys: Sequence[str]) -> dict[str, KeyEntry]:
        self._write_spent_keys()
        found = self.rows(self.sql.keys_of, (Texts(keys),))
        return {key: KeyEntry(digest, job, seq, until) for key, digest, job, seq, until in found}

    def write_keys(self, keys: Sequence[NewKey]) -> None:
        key, digest, job, at = zip(*{one.key: one for one in keys}.values(), strict=True)
        self.run(self.sql.insert_keys, (Texts(key), Texts(digest), Texts(job), Bigints(at)))

    def free_keys(self, job: str) -> None:
        self._freed_keys.append(job)

    def spend_keys(self, row: Row, keys_for: int, since: int | None) -> None:
        self._spent_keys.append((row.id, keys_for, since, row.arrived))

    def _write_spent_keys(self) -> None:
        if self._freed_keys:
            self.run(self.sql.delete_keys, (Texts(self._freed_keys),))
            self._freed_keys.clear()
        if self._spent_keys:
            job, keys_for, since, arrived = zip(*self._spent_keys, strict=True)
            self.run(self.sql.spend_keys, (Texts(job), Bigints(keys_for), Bigints(since), Bigints(arrived)))
            self._spent_keys.clear()

    def purge_keys(self, limit: int) -> int:
        return self.run(self.sql.purge_keys, (self.steady, self.steady, limit))

    def read_holders(self, names: Sequence[str]) -> dict[str, int]:
        return dict(self.rows(self.sql.holders_of, (Texts(names),)))

    def write_names(self, changes: Sequence[NameChange]) -> None:
        taken = sorted((name, seq) for name, seq, kind in changes if kind == "take")
        freed = sorted((name, None if kind == "free" else seq) for name, seq, kind in changes if kind != "take")
        for statement, pairs in ((self.sql.delete_uniques, freed), (self.sql.insert_uniques, taken)):
            if pairs:
                self.run(statement, (Texts([name for name, _ in pairs]), Bigints([seq for _, seq in pairs])))

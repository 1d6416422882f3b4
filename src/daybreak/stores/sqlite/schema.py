"""Opening a file: checks, migrations, and the steady clock that all its processes share."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from daybreak.core.errors import StoreReadOnly, StoreTooNew, StoreUnsuitable
from daybreak.stores.sqlite import rows
from daybreak.stores.sqlite.faults import Translated
from daybreak.stores.sqlite.statements import migrations, sql
from daybreak.system import platform

APPLICATION: Final = 0x44415942  # "DAYB"

_FIRST_FIXED: Final = 3_051_003
_NOT_FIXED: Final = range(3_052_000, 3_053_000)


class SchemaVersion(NamedTuple):
    """The schema that a program knows. Each script brings a file from the version before to the next.

    `needs` is the version of the oldest program that can work on this schema: the version before, unless a change
    forbids it."""

    scripts: tuple[str, ...]
    needs: int

    @property
    def number(self) -> int:
        return len(self.scripts)


CURRENT: Final = SchemaVersion(tuple(getattr(migrations, name) for name in migrations.names()), needs=1)


def check_library(version: str | None = None) -> None:
    """Refuse a SQLite version in which two processes that reset the log at the same time can corrupt a file."""
    version = version or apsw.sqlite_lib_version()
    major, minor, patch = (int(part) for part in [*version.split("."), "0", "0"][:3])
    number = major * 1_000_000 + minor * 1000 + patch
    if number < _FIRST_FIXED or number in _NOT_FIXED:
        raise StoreUnsuitable(
            f"SQLite {version} can corrupt a file that several processes write to (the WAL-reset bug): "
            "install apsw 3.53 or newer, which brings its own SQLite"
        )


def check_place(path: Path) -> None:
    """Refuse a path where the store cannot keep its promises, before anything is created there."""
    with Translated(path):  # this user may not be allowed to enter the folder
        is_there = path.exists()
        try:
            path.resolve()
        except RuntimeError:
            raise StoreUnsuitable(f"{path} is a symbolic link that leads back to itself: use another path") from None
    folder = path.parent
    if path.is_dir():
        raise StoreUnsuitable(f"{path} is a folder: use a file inside it, such as {path / 'daybreak.db'}")
    if not folder.is_dir():
        raise StoreUnsuitable(f"{path}: its folder does not exist; create {folder} first")
    kind = platform.file_system(folder)
    if kind in platform.NETWORK_FILE_SYSTEMS:
        raise StoreUnsuitable(
            f"{path} lies on a network file system ({kind}), where SQLite's locks cannot be trusted: "
            "use a local disk, or PostgreSQL for several machines"
        )
    if not os.access(folder, os.W_OK) or (is_there and not os.access(path, os.W_OK)):
        raise StoreReadOnly(f"this user may not write to {path}: change its permissions, or use another path")


def create(path: Path) -> None:
    """Create the file, readable only by its owner. SQLite gives its log and index the same permissions."""
    # O_EXCL, so only a new file is opened: closing a descriptor of a file that SQLite has open would drop all its locks
    # in this process.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def connect(path: Path, vfs: str | None) -> apsw.Connection:
    """A connection that plans each statement once. By default SQLite plans a statement with `LIMIT ?` again at every
    use, because the number might change the plan; that costs ten times as much as the statement itself."""
    db = apsw.Connection(str(path), vfs=vfs, statementcachesize=200)
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return db


def prepare(db: apsw.Connection, path: Path, known: SchemaVersion) -> None:
    """Configure a connection, and refuse a file that this program cannot work on."""
    db.set_busy_timeout(5000)  # for other programs that lock the file; stores wait for the write lock
    db.pragma("trusted_schema", False)
    db.pragma("cell_size_check", True)
    db.pragma("temp_store", "memory")
    db.pragma("cache_size", -65_536)
    db.execute("BEGIN")  # one snapshot, because another process may be creating the tables
    try:
        refuse_newer(db, path, known)
    finally:
        db.execute("ROLLBACK")


def migrate(db: apsw.Connection, path: Path, known: SchemaVersion) -> None:
    """Bring the file to the version that this program knows, in one transaction. The caller holds the write lock, so
    two programs may start at once."""
    if not db.pragma("user_version"):
        db.pragma("auto_vacuum", 2)  # incremental; only possible while the file is empty
    db.pragma("journal_mode", "wal")
    db.execute("BEGIN IMMEDIATE")
    try:
        refuse_newer(db, path, known)
        for script in known.scripts[db.pragma("user_version") :]:
            for statement in _statements(script):
                db.execute(statement)
            db.pragma("user_version", db.pragma("user_version") + 1)
            db.pragma("application_id", APPLICATION)
            db.execute(sql.set_meta, ("needs", known.needs))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _statements(script: str) -> list[str]:
    lines = [line for line in script.splitlines() if not line.lstrip().startswith("--")]
    return [statement for statement in "\n".join(lines).split(";") if statement.strip()]


def refuse_newer(db: apsw.Connection, path: Path, known: SchemaVersion = CURRENT) -> None:
    """Refuse a file of another program, or of a Daybreak that is too new. Called inside a transaction."""
    version = db.pragma("user_version")
    if version and db.pragma("application_id") != APPLICATION:
        raise StoreUnsuitable(f"{path} is a SQLite file of another program: choose another path")
    if not version and db.execute("SELECT count(*) FROM sqlite_schema").fetchone() != (0,):
        raise StoreUnsuitable(f"{path} is a SQLite file with tables of another program: choose another path")
    if version <= known.number:
        return
    needs = (db.execute(sql.get_meta, ("needs",)).fetchone() or (version,))[0]
    if needs > known.number:
        raise StoreTooNew(
            f"{path} was written by a newer Daybreak (schema {version}, this one knows {known.number}): "
            "upgrade this installation; the file was not changed"
        )


def refuse_if_migrated(db: apsw.Connection, path: Path, known: SchemaVersion) -> None:
    """`refuse_newer` for a file that is in use: another program may have brought it to a newer version meanwhile."""
    if db.execute("PRAGMA user_version").fetchone() != (known.number,):
        refuse_newer(db, path, known)


def anchor(db: apsw.Connection, wall: int, steady: int, boot: str) -> int:
    """The difference between the store's steady time and the machine's steady clock; the same for all processes until
    the next boot. The store's time never goes back over a boot. Leases from before the boot expire, because their
    holders are dead; detached ones have no holder here."""
    known = db.execute(sql.get_meta, ("boot",)).fetchone()
    if known is not None and known[0] == boot:
        return int(db.execute(sql.get_meta, ("anchor",)).fetchone()[0])  # type: ignore[index]
    latest = int(db.execute(sql.latest_time).fetchone()[0])  # type: ignore[index]
    found = max(wall, latest) - steady
    detached = [seq for seq, packed in db.execute(sql.lease_carries) if rows.is_detached(packed)]
    db.execute(sql.expire_leases, (rows.seqs_parameter(detached),))
    db.execute(sql.set_meta, ("boot", boot))
    db.execute(sql.set_meta, ("anchor", found))
    return found

"""Records: settings and other small things, compared by revision when they are written."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from daybreak.errors import BadInput
from daybreak.model import Put, QueueSettings, Record
from daybreak.store import work_topic
from daybreak.stores.sqlite.ledger import Ledger
from daybreak.stores.sqlite.statements import sql


def put(ledger: Ledger, puts: Sequence[Put]) -> list[Record | None]:
    return [_put(ledger, put) for put in puts]


def _put(ledger: Ledger, put: Put) -> Record | None:
    settings = _settings(put) if put.kind == "queue" else None
    there = ledger.execute(sql.get_record, (put.kind, put.name)).fetchone()
    if put.expect is not None and put.expect != (there[0] if there else 0):
        return None
    # One series of revisions for all records: one that was deleted and written anew never has an old number.
    revision = (ledger.value(sql.get_meta, ("revision",)) or 0) + 1
    ledger.execute(sql.set_meta, ("revision", revision))
    if put.value is None:
        ledger.execute(sql.delete_record, (put.kind, put.name))
    else:
        ledger.execute(sql.put_record, (put.kind, put.name, revision, put.value))
    if settings is not None:
        ledger.known.settings[put.name] = settings
        ledger.wake(work_topic(put.name))
    return Record(kind=put.kind, name=put.name, value=put.value or b"", revision=revision)


def _settings(put: Put) -> QueueSettings:
    if put.value is None:
        return QueueSettings()
    try:
        return msgspec.json.decode(put.value, type=QueueSettings)
    except msgspec.DecodeError as trouble:
        raise BadInput(f"queue {put.name!r}: these are no queue settings: {trouble}") from None


def records(ledger: Ledger, kind: str, name: str | None) -> list[Record]:
    return [
        Record(kind=kind, name=called, value=value, revision=revision)
        for called, revision, value in ledger.execute(sql.all_records, (kind, name))
    ]

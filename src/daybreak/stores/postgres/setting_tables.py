"""Records, and the settings and counts of queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from daybreak.core.model import DEFAULT_QUEUE, Put, QueueSettings, State
from daybreak.core.units import span
from daybreak.stores.postgres.arrays import Texts
from daybreak.stores.postgres.clock import SERVER_TIME
from daybreak.stores.postgres.statement_transaction import StatementTransaction


class SettingTables(StatementTransaction):
    """The tables `record`, `queue` and `tally`."""

    # -- queues --------------------------------------------------------------------------------------------------------

    def read_settings(self, queues: Sequence[str]) -> Mapping[str, QueueSettings]:
        settings = dict.fromkeys(queues, DEFAULT_QUEUE)
        for name, paused, max_running, capacity, sheds, aging, patience, weight in self.rows(
            self.sql.get_queues, (Texts(queues),)
        ):
            settings[name] = QueueSettings(
                paused=paused,
                max_running=max_running,
                capacity=capacity,
                when_full="shed" if sheds else "refuse",
                discipline="aging" if aging else "fifo",
                patience=timedelta(microseconds=patience),
                weight=weight,
            )
        return settings

    def write_settings(self, queue: str, settings: QueueSettings | None) -> None:
        self.rows(self.sql.lock_claims)
        if settings is None:
            self.run(self.sql.delete_queue, (queue,))
            return
        self.run(
            self.sql.put_queue,
            (
                queue, settings.paused, settings.max_running, settings.capacity, settings.when_full == "shed",
                settings.discipline == "aging", span(settings.patience), settings.weight,
            ),
        )  # fmt: skip

    def lock_queues(self, queues: Sequence[str]) -> None:
        wanted = [queue for queue in queues if queue not in self._locked_queues]
        if wanted:
            self.rows(self.sql.lock_queues, (Texts(wanted),))
            if not self._is_given:  # the wait for the lock took time, and a lease counts from when it is granted
                self._advance_time(self.value(SERVER_TIME))
            self._locked_queues.update(wanted)
            self.load_settings(wanted)

    def share_claims(self) -> None:
        """Exclude a change of queue settings until the end of the transaction."""
        self.rows(self.sql.share_claims)

    def read_tallies(self, queues: Sequence[str], states: frozenset[State]) -> dict[str, int]:
        return dict(self.rows(self.sql.tallied, (Texts(queues), Texts([state.value for state in states]))))

    # -- records -------------------------------------------------------------------------------------------------------

    def read_revision(self, kind: str, name: str) -> int:
        return self.value(self.sql.get_record, (kind, name)) or 0

    def next_revision(self) -> int:
        return self._sequences.take(self.sql.next_revisions, self.rows)

    def write_record(self, put: Put, revision: int) -> None:
        if put.value is None:
            self.run(self.sql.delete_record, (put.kind, put.name))
        else:
            self.run(self.sql.put_record, (put.kind, put.name, revision, put.value))

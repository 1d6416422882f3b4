"""Runs operations on one connection: each as one plain call if possible, else as a transaction of the kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from daybreak.core.model import JobSpec, Lease, Put, Record
from daybreak.core.units import span
from daybreak.store.protocol import (
    EVENTS_TOPIC,
    Advanced,
    Exchange,
    Exchanged,
    Inserted,
    Purge,
    Purged,
    Reap,
    work_topic,
)
from daybreak.stores.kernel import pass_time, purge, records, resource_queue, settle
from daybreak.stores.kernel.exchange import exchange as exchange_jobs
from daybreak.stores.kernel.insert import insert
from daybreak.stores.postgres import faults, outbox, plain_path
from daybreak.stores.postgres.arrays import Ints, Texts
from daybreak.stores.postgres.clock import ServerClock
from daybreak.stores.postgres.commit_listener import CommitListener
from daybreak.stores.postgres.connection import Connection
from daybreak.stores.postgres.driver import psycopg
from daybreak.stores.postgres.lanes import Lanes
from daybreak.stores.postgres.plain_exchange import PlainExchange
from daybreak.stores.postgres.prepared_calls import Call
from daybreak.stores.postgres.sequences import SequenceCache
from daybreak.stores.postgres.statements import Statements
from daybreak.stores.postgres.transaction import PostgresTransaction

T = TypeVar("T")


class Engine:
    """One connection and what it needs to run one operation; created for each."""

    def __init__(
        self,
        connection: Connection,
        sql: Statements,
        lanes: Lanes,
        clock: ServerClock,
        listener: CommitListener,
        resource_hints: plain_path.ResourceHints,
        insert_one: Call,
        *,
        uses_plain_path: bool = True,
    ) -> None:
        self.connection = connection
        self._sql = sql
        self._lanes = lanes
        self._clock = clock
        self._listener = listener
        self._resource_hints = resource_hints
        self._insert_one_call = insert_one
        self._uses_plain_path = uses_plain_path

    # -- transactions --------------------------------------------------------------------------------------------------

    def write(self, run: Callable[[PostgresTransaction], T], now: int | None, *, lock_resources: bool = False) -> T:
        """Run `run` in a transaction. `lock_resources` takes the resource lock first; a transaction that finds out
        later that it needs the lock starts over with it, because that lock comes before every other."""
        sequences = SequenceCache()
        try:
            return self._write(run, now, sequences, lock_resources=lock_resources)
        except faults.NeedsResourceLock:
            sequences.rewind()
            return self._write(run, now, sequences, lock_resources=True)

    def _write(
        self,
        run: Callable[[PostgresTransaction], T],
        now: int | None,
        sequences: SequenceCache,
        *,
        lock_resources: bool,
    ) -> T:
        def do(time: int) -> tuple[T, PostgresTransaction]:
            wall, offset = (time, self._clock.offset) if now is None else (now, 0)
            tx = PostgresTransaction(
                self.connection,
                self._sql,
                self._lanes,
                wall,
                offset=offset,
                is_given=now is not None,
                sequences=sequences,
            )
            if lock_resources:
                tx.lock_resources()
            answer = run(tx)
            resource_queue.offer_freed(tx)
            tx.flush()
            return answer, tx

        answer, tx = self.connection.transaction(do)
        if tx.lanes is not self._lanes:
            self._lanes.update(tx.lanes)
        self._listener.on_commit(tx.topics, deleted_rows=tx.deleted_rows)
        return answer

    def read(self, run: Callable[[PostgresTransaction], T]) -> T:
        def do(time: int) -> T:
            return run(PostgresTransaction(self.connection, self._sql, self._lanes, time, offset=self._clock.offset))

        return self.connection.reading(do)

    # -- operations ----------------------------------------------------------------------------------------------------

    def insert(self, specs: Sequence[JobSpec], now: int | None) -> list[Inserted]:
        is_plain = self._uses_plain_path and specs and plain_path.are_plain(specs)
        if is_plain and (answers := self._insert_plain(specs, now)) is not None:
            return answers
        return self.write(lambda tx: insert(tx, specs), now, lock_resources=_have_holders(specs))

    def _insert_plain(self, specs: Sequence[JobSpec], now: int | None) -> list[Inserted] | None:
        if len(specs) == 1:
            return self._insert_one(specs[0], now)
        topics = {EVENTS_TOPIC, *(work_topic(queue) for queue in {spec.queue for spec in specs})}
        lanes, clock_params = self._lanes_of(specs), self._clock.clock_params(now)
        params, statement = plain_path.insert_params(specs, lanes, now, clock_params), self._sql.call_insert
        if (notice := self._listener.notice_in_commit()) is not None:
            channel, sender = notice
            params, statement = (*params, channel, Texts(sorted(topics)), sender), self._sql.call_insert_and_notify
        sent_at = self._clock.steady()
        try:
            [(at, seqs, notified)] = self.connection.query(statement, params)
        except psycopg.errors.UniqueViolation:
            return None
        if now is None:
            self._clock.note(at + clock_params[0], sent_at)
        if seqs is None:
            return None
        self._listener.on_commit(topics, notified or ())
        return plain_path.to_inserted(specs, seqs)

    def _insert_one(self, spec: JobSpec, now: int | None) -> list[Inserted] | None:
        topics = {EVENTS_TOPIC, work_topic(spec.queue)}
        [lane], clock_params = self._lanes_of([spec]), self._clock.clock_params(now)
        params = plain_path.insert_one_params(spec, lane, now, self._listener.notice_in_commit(), topics, clock_params)
        sent_at = self._clock.steady()
        try:
            [(at, seq, notified)] = self.connection.call(self._insert_one_call, params)
        except psycopg.errors.UniqueViolation:
            return None
        if now is None:
            self._clock.note(at + clock_params[0], sent_at)
        if seq is None:
            return None
        self._listener.on_commit(topics, notified or ())
        return plain_path.to_inserted([spec], [seq])

    def _lanes_of(self, specs: Sequence[JobSpec]) -> list[int]:
        numbers = self._lanes.numbers
        names = [(spec.queue, spec.task, spec.version) for spec in specs]
        if unknown := sorted({name for name in names if name not in numbers}):
            queues, tasks, versions = zip(*unknown, strict=True)
            params = (Texts(queues), Texts(tasks), Ints(versions))
            for number, queue, task, version in self.connection.query(self._sql.add_lanes, params):
                self._lanes.add(number, (queue, task, version))
        if missing := [name for name in unknown if name not in numbers]:  # another process is adding them
            self.write(lambda tx: [tx.lane(name) for name in missing], None)
        return [numbers[name] for name in names]

    def exchange(self, exchange: Exchange, now: int | None, *, is_plain: bool = True) -> Exchanged:
        """`is_plain` False: the plain path was tried and refused."""
        is_plain = is_plain and self._uses_plain_path and plain_path.is_plain(exchange)
        if is_plain and (answer := self._exchange_plain(exchange, now)) is not None:
            return answer
        lock_resources = self._resource_hints.use_resources(exchange) or _uses_resources(exchange)
        return self.write(lambda tx: _exchange(tx, exchange), now, lock_resources=lock_resources)

    def _exchange_plain(self, request: Exchange, now: int | None) -> Exchanged | None:
        """The answer; None if the request is not plain, or conflicted with another transaction."""
        exchange = PlainExchange(request, now, self._clock, self._lanes, self._resource_hints, self._listener)
        while True:
            had_locked = exchange.locks_resources
            try:
                rows = self.connection.query(self._sql.call_exchange, exchange.params())
            except psycopg.Error as error:
                if faults.is_retryable(error):
                    return None
                raise
            exchange.publish(rows)
            if exchange.receive(rows):
                break
            if had_locked or not exchange.locks_resources:
                return None
        if not exchange.knows_lanes:
            self.load_lanes()
        return exchange.answer()

    def has_incoming(self) -> bool:
        """Whether jobs that other programs committed in their own transactions wait to be accepted."""
        [(has_jobs,)] = self.connection.read(self._sql.has_incoming)
        return bool(has_jobs)

    def load_lanes(self) -> None:
        self.connection.reading(self._load_lanes)

    def _load_lanes(self, _: int) -> None:
        for number, *name in self.connection.rows(self._sql.all_lanes):
            self._lanes.add(number, tuple(name))

    def put(self, puts: Sequence[Put], now: int | None) -> list[Record | None]:
        """Write records. A worker's own record, which it writes again and again, takes one statement."""
        if self._uses_plain_path and len(puts) == 1 and plain_path.is_plain_put(puts[0]):
            [put] = puts
            [(revision,)] = self.connection.query(self._sql.put_alone, plain_path.put_params(put))
            self._listener.on_commit(set())
            return [Record(kind=put.kind, name=put.name, value=put.value or b"", revision=revision)]
        return self.write(lambda tx: records.put(tx, puts), now, lock_resources=_set_resources(puts))

    def reap(self, wanted: Reap, asked_at: int | None) -> list[Lease]:
        """Take over lapsed leases by the server's clock. If that clock was set back, first shorten every lease to its
        own length from now."""
        self._report_even_clock()
        if not self._check_for_work(self._sql.may_reap)[1]:
            return []

        def run(tx: PostgresTransaction) -> list[Lease]:
            tx.run(tx.sql.clamp_leases, (tx.steady, tx.steady))
            return settle.reap(tx, wanted, tx.steady if asked_at is None else min(asked_at, tx.steady))

        return self.write(run, None)

    def _report_even_clock(self) -> None:
        """Report that the server's clock ran evenly, so that a process that was suspended does not mistake its own
        pause for a jump of the clock."""
        if self._clock.must_report_even():
            self.connection.execute(
                self._sql.report_even_clock, {"since": self._clock.even_since(), "now": self._clock.about()}
            )

    def purge(self, wanted: Purge, now: int | None) -> Purged:
        is_plain = now is None and not wanted.moved
        if is_plain and not self._check_for_work(self._sql.may_purge, (span(wanted.events_for),))[1]:
            return Purged()
        return self.write(lambda tx: purge.purge(tx, wanted), now)

    def _check_for_work(self, statement: str, params: Sequence[Any] = ()) -> Any:
        """Run one cheap statement that returns the steady time and whether there is work; an idle store seldom has
        any."""
        found = self._check_once(statement, params)
        if self._clock.jump is not None:  # the next query corrects it first
            found = self._check_once(statement, params)
        return found

    def _check_once(self, statement: str, params: Sequence[Any]) -> Any:
        self.connection.read_clock()
        offset, sent_at = self._clock.offset, self._clock.steady()
        [found] = self.connection.query(statement, (*params, offset))
        self._clock.note(found[0] + offset, sent_at)
        return found

    def advance(self, limit: int, now: int | None) -> Advanced:
        if now is None:
            at, is_due, next_due = self._check_for_work(self._sql.may_advance)
            if not is_due:
                return Advanced(next_in=None if next_due is None else timedelta(microseconds=next_due - at))

        def run(tx: PostgresTransaction) -> Advanced:
            outbox.accept(tx, limit)
            return pass_time.advance(tx, limit)

        return self.write(run, now)


def _have_holders(specs: Sequence[JobSpec]) -> bool:
    return any(spec.holder is not None for spec in specs)


def _set_resources(puts: Sequence[Put]) -> bool:
    """Whether one of them is a setting of a resource, or brings a job with a holder."""
    return any(put.kind in records.RESOURCE_KINDS or _have_holders(put.inserts) for put in puts)


def _uses_resources(exchange: Exchange) -> bool:
    """Whether the exchange itself contains something that concerns resources."""
    return (
        _have_holders(exchange.insert)
        or _set_resources(exchange.put)
        or any(_have_holders(one.inserts) or _set_resources(one.puts) for one in exchange.settle)
    )


def _lock_queue_limits(tx: PostgresTransaction, exchange: Exchange) -> None:
    """Lock queues before jobs, in the same order as an insert does, so that two transactions that need both cannot
    deadlock."""
    claims = () if exchange.claim is None else exchange.claim.queues
    if claims:
        tx.share_claims()
    fills = {spec.queue for spec in exchange.insert}
    tx.load_settings({*claims, *fills})
    limited = {queue for queue in claims if tx.settings(queue).max_running is not None}
    tx.lock_queues(sorted(limited | {queue for queue in fills if tx.settings(queue).capacity is not None}))


def _exchange(tx: PostgresTransaction, exchange: Exchange) -> Exchanged:
    _lock_queue_limits(tx, exchange)
    return exchange_jobs(tx, exchange)

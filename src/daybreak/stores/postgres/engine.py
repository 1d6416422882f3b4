"""One connection at work: which operation is one call, and which a transaction of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeVar

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
from daybreak.stores.postgres import faults, outbox, pass_time, plain_path, purge, records, resource_queue, settle
from daybreak.stores.postgres.arrays import Texts
from daybreak.stores.postgres.claim import Claiming
from daybreak.stores.postgres.clock import ServerClock
from daybreak.stores.postgres.driver import psycopg
from daybreak.stores.postgres.insert import Inserting
from daybreak.stores.postgres.ledger import Lanes, Ledger, SequenceCache
from daybreak.stores.postgres.link import Link
from daybreak.stores.postgres.prepared_calls import Call
from daybreak.stores.postgres.settle import Settling
from daybreak.stores.postgres.statements import Statements

T = TypeVar("T")


class News(Protocol):
    """Who hears of what changed."""

    def within(self) -> tuple[str, str] | None:
        """The channel on which a commit may tell it by itself, and who says so; None: it is told after the commit."""
        ...

    def committed(self, topics: set[str], told: Iterable[str] = (), *, left: int = 0) -> None:
        """Of `told` other processes have heard by the commit itself; so many jobs `left` the line."""
        ...


class Engine:
    """Lives for one piece of work."""

    def __init__(
        self,
        link: Link,
        sql: Statements,
        lanes: Lanes,
        clock: ServerClock,
        news: News,
        habits: plain_path.ResourceHints,
        insert_one: Call,
    ) -> None:
        self.link = link
        self._sql = sql
        self._lanes = lanes
        self._clock = clock
        self._news = news
        self._habits = habits
        self._one = insert_one

    # -- transactions of the ledger ------------------------------------------------------------------------------------

    def write(self, run: Callable[[Ledger], T], now: int | None, *, alone: bool = False) -> T:
        """`alone`: with all resources. A transaction that finds only later that it must be begins again."""
        drawn = SequenceCache()
        try:
            return self._write(run, now, drawn, alone=alone)
        except faults.MustBeAlone:
            drawn.begin_again()
            return self._write(run, now, drawn, alone=True)

    def _write(self, run: Callable[[Ledger], T], now: int | None, drawn: SequenceCache, *, alone: bool) -> T:
        def do(time: int) -> tuple[T, Ledger]:
            hand, offset = (time, self._clock.offset) if now is None else (now, 0)
            ledger = Ledger(
                self.link, self._sql, self._lanes, hand, offset=offset, is_given=now is not None, drawn=drawn
            )
            if alone:
                ledger.be_alone()
            answer = run(ledger)
            resource_queue.offer_freed(ledger)
            ledger.flush()
            return answer, ledger

        answer, ledger = self.link.transaction(do)
        if ledger.lanes is not self._lanes:
            self._lanes.learn(ledger.lanes)
        self._news.committed(ledger.topics, left=ledger.left)
        return answer

    def read(self, run: Callable[[Ledger], T]) -> T:
        def do(time: int) -> T:
            return run(Ledger(self.link, self._sql, self._lanes, time, offset=self._clock.offset))

        return self.link.reading(do)

    # -- operations ----------------------------------------------------------------------------------------------------

    def insert(self, specs: Sequence[JobSpec], now: int | None) -> list[Inserted]:
        if specs and plain_path.are_plain(specs) and (answers := self._insert_fast(specs, now)) is not None:
            return answers
        return self.write(lambda ledger: Inserting(ledger, specs).insert(), now, alone=_have_holders(specs))

    def _insert_fast(self, specs: Sequence[JobSpec], now: int | None) -> list[Inserted] | None:
        if len(specs) == 1:
            return self._insert_one(specs[0], now)
        topics = {EVENTS_TOPIC, *(work_topic(queue) for queue in {spec.queue for spec in specs})}
        lanes, hands = self._lanes_of(specs), self._clock.hands(now)
        params, statement = plain_path.insert_params(specs, lanes, now, hands), self._sql.call_insert
        if (telling := self._news.within()) is not None:
            channel, who = telling
            params, statement = (*params, channel, Texts(sorted(topics)), who), self._sql.call_insert_and_tell
        asked = self._clock.steady()
        try:
            [(at, seqs, told)] = self.link.ask(statement, params)
        except psycopg.errors.UniqueViolation:
            return None
        if now is None:
            self._clock.note(at + hands[0], asked)
        if seqs is None:
            return None
        self._news.committed(topics, told or ())
        return plain_path.inserted(specs, seqs)

    def _insert_one(self, spec: JobSpec, now: int | None) -> list[Inserted] | None:
        topics = {EVENTS_TOPIC, work_topic(spec.queue)}
        [lane], hands = self._lanes_of([spec]), self._clock.hands(now)
        params = plain_path.one_params(spec, lane, now, self._news.within(), topics, hands)
        asked = self._clock.steady()
        try:
            [(at, seq, told)] = self.link.call(self._one, params)
        except psycopg.errors.UniqueViolation:
            return None
        if now is None:
            self._clock.note(at + hands[0], asked)
        if seq is None:
            return None
        self._news.committed(topics, told or ())
        return plain_path.inserted([spec], [seq])

    def _lanes_of(self, specs: Sequence[JobSpec]) -> list[int]:
        numbers = self._lanes.numbers
        names = [(spec.queue, spec.task, spec.version) for spec in specs]
        if unknown := sorted({name for name in names if name not in numbers}):
            self.write(lambda ledger: [ledger.lane(*name) for name in unknown], None)
        return [numbers[name] for name in names]

    def exchange(self, exchange: Exchange, now: int | None, *, is_plain: bool = True) -> Exchanged:
        """`is_plain` False: it was tried, and is not."""
        if is_plain and plain_path.is_plain(exchange) and (answer := self._exchange_fast(exchange, now)) is not None:
            return answer
        alone = self._habits.are_shared(exchange) or _is_shared(exchange)
        return self.write(lambda ledger: _exchange(ledger, exchange), now, alone=alone)

    def _exchange_fast(self, exchange: Exchange, now: int | None) -> Exchanged | None:
        alone = self._habits.are_shared(exchange)
        hands = self._clock.hands(now)
        rows = self._call_exchange(exchange, now, hands, alone=alone)
        if rows and rows[0][0] == plain_path.SHARED and not alone:
            self._habits.note(exchange, are_shared=True)
            hands = self._clock.hands(now)
            rows = self._call_exchange(exchange, now, hands, alone=True)
        if not rows or rows[0][0] != plain_path.DONE:
            return None
        if alone:
            self._habits.note(exchange, are_shared=bool(rows[0][4]))
        if topics := plain_path.topics_of(exchange, rows):
            self._news.committed(topics, left=len(rows) - 1)
        if not plain_path.knows_lanes(rows, self._lanes):
            self.know_lanes()
        return plain_path.exchanged(exchange, rows, self._lanes, hands[0])

    def _call_exchange(self, exchange: Exchange, now: int | None, hands: plain_path.Hands, *, alone: bool) -> list[Any]:
        asked = self._clock.steady()
        try:
            rows = self.link.ask(self._sql.call_exchange, plain_path.exchange_params(exchange, now, hands, alone=alone))
        except psycopg.Error as error:
            if faults.is_passing(error):
                return []
            raise
        if now is None:
            self._clock.note(rows[0][1] + hands[0], asked)
        return rows

    def know_lanes(self) -> None:
        self.link.reading(self._know_lanes)

    def _know_lanes(self, _: int) -> None:
        for number, *name in self.link.rows(self._sql.all_lanes):
            self._lanes.add(number, tuple(name))

    def put(self, puts: Sequence[Put], now: int | None) -> list[Record | None]:
        """What a worker says of itself, again and again, is one statement."""
        if len(puts) == 1 and records.is_plain(puts[0]):
            [put] = puts
            [(revision,)] = self.link.ask(self._sql.put_alone, records.plain_params(put))
            self._news.committed(set())
            return [Record(kind=put.kind, name=put.name, value=put.value or b"", revision=revision)]
        return self.write(lambda ledger: records.put(ledger, puts), now, alone=records.are_shared(puts))

    def reap(self, wanted: Reap, asked_at: int | None, watched_for: int) -> list[Lease]:
        """By the server's own clock, whose jumps are healed here: no lease reaches further than its own length."""
        self._testify()
        if not self._look(self._sql.may_reap)[1]:
            return []

        def run(ledger: Ledger) -> list[Lease]:
            ledger.run(ledger.sql.clamp_leases, (ledger.steady, ledger.steady))
            judged = ledger.steady if asked_at is None else min(asked_at, ledger.steady)
            return settle.reap(ledger, wanted, judged, watched_for)

        return self.write(run, None)

    def _testify(self) -> None:
        """Tell others that the clock ran evenly, so that one who stood still takes its own pause for no jump."""
        if self._clock.may_testify():
            self.link.order(self._sql.testify, {"since": self._clock.even_since(), "now": self._clock.about()})

    def purge(self, wanted: Purge, now: int | None) -> Purged:
        is_plain = now is None and not (wanted.forwarded or wanted.moved)
        if is_plain and not self._look(self._sql.may_purge, (span(wanted.events_for),))[1]:
            return Purged()
        return self.write(lambda ledger: purge.purge(ledger, wanted), now)

    def _look(self, statement: str, params: Sequence[Any] = ()) -> Any:
        """One statement that says the steady time and whether there is anything to do: at rest there seldom is."""
        found = self._look_once(statement, params)
        if self._clock.jump is not None:  # it is corrected before the next question
            found = self._look_once(statement, params)
        return found

    def _look_once(self, statement: str, params: Sequence[Any]) -> Any:
        self.link.read_clock()
        offset, asked = self._clock.offset, self._clock.steady()
        [found] = self.link.ask(statement, (*params, offset))
        self._clock.note(found[0] + offset, asked)
        return found

    def advance(self, limit: int, now: int | None) -> Advanced:
        if now is None:
            at, is_due, next_due = self._look(self._sql.may_advance)
            if not is_due:
                return Advanced(next_in=None if next_due is None else timedelta(microseconds=next_due - at))

        def run(ledger: Ledger) -> Advanced:
            outbox.accept(ledger, limit)
            expired = pass_time.expire(ledger, limit)
            due = pass_time.promote(ledger, limit)
            resource_queue.offer_freed(ledger)
            return Advanced(due=due, expired=expired, next_in=pass_time.next_in(ledger), again=limit in (due, expired))

        return self.write(run, now)


def _have_holders(specs: Sequence[JobSpec]) -> bool:
    return any(spec.holder is not None for spec in specs)


def _is_shared(exchange: Exchange) -> bool:
    """Whether it says by itself that it is about resources."""
    return (
        _have_holders(exchange.insert)
        or records.are_shared(exchange.put)
        or any(_have_holders(said.inserts) or records.are_shared(said.puts) for said in exchange.settle)
    )


def _lock_limits(ledger: Ledger, exchange: Exchange) -> None:
    """Queues before jobs, as whoever inserts does: two who need both wait for each other in one direction only."""
    claims = () if exchange.claim is None else exchange.claim.queues
    if claims:
        ledger.rows(ledger.sql.share_claims)
    fills = {spec.queue for spec in exchange.insert}
    ledger.know_settings({*claims, *fills})
    limited = {queue for queue in claims if ledger.settings(queue).max_running is not None}
    ledger.lock_limits(sorted(limited | {queue for queue in fills if ledger.settings(queue).capacity is not None}))


def _exchange(ledger: Ledger, exchange: Exchange) -> Exchanged:
    _lock_limits(ledger, exchange)
    settling = Settling(ledger)
    settled = settling.settle(exchange.settle) if exchange.settle else []
    if settling.inserts:
        Inserting(ledger, settling.inserts, bounded=False).insert()
    if settling.puts:
        records.put(ledger, settling.puts)
    inserted = Inserting(ledger, exchange.insert).insert() if exchange.insert else []
    put = records.put(ledger, exchange.put) if exchange.put else []
    resource_queue.offer_freed(ledger)
    if exchange.claim is None:
        return Exchanged(settled=settled, inserted=inserted, put=put)
    outbox.accept(ledger, exchange.claim.limit + 100)
    claiming = Claiming(ledger, exchange.claim)
    leases = claiming.claim()
    return Exchanged(
        settled=settled, inserted=inserted, put=put, leases=leases, next_in=claiming.next_in, again=claiming.again
    )

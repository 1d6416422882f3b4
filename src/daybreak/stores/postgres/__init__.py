"""The PostgreSQL store: any number of machines on one database.

store                 the seam: which operation is done how
plain_path            submits, claims and settlements that need no decision, one round trip each (migrations/*-insert*,
                      -exchange*); prepared_calls: how they are sent
ledger                one transaction of everything else, and what it has changed; insert, claim, settle, amend,
                      pass_time, purge, records, adopt and read work on it; job_moves: between tables
resource_queue        who waits for resources, and who may try; gauge_rows: their numbers
link                  one connection; connection_threads: a few of them with threads, blocking_insert: in the caller's
                      own thread, loop_connection: on a worker's event loop
wake                  who waits and who wakes them; event_feed, event_lines: the feed
clock                 the server's time; watchdog: calls that take too long are given up
transactional_submit  a submit inside the caller's own transaction; outbox: accepting it after the commit
vacuum                keeps moving tables free of dead rows
sql/                  the statements, one file for each table or purpose
"""

from daybreak.stores.postgres import driver as _driver  # noqa: F401 - first: it says what to do without psycopg
from daybreak.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]

"""The PostgreSQL store: any number of machines on one database.

store                 PostgresStore: the store protocol, one method per operation
engine                runs one operation on one connection: as one plain call, or as a transaction of the kernel
plain_path            submits, claims and settlements that need no decision, one round trip each (the SQL functions in
                      migrations/); prepared_calls: how they are sent. It may refuse, it may never differ
transaction           everything else: what the kernel reads and writes; name_tables, setting_tables, resource_tables:
                      parts of it; job_tables: how jobs are written; rows, gauge_rows, totals: what is a column, what
                      is packed; lanes, sequences: numbers; statement_transaction: what all of these share
read                  pages, counts and positions
connections           everything an open store owns
session               how a connection is made; schema: what opening checks, creates and migrates
connection            one connection; connection_threads: a few connections with a thread each; blocking_insert: one in
                      the caller's own thread; loop_connection: connections on a worker's event loop
wake                  LISTEN and NOTIFY between processes; event_feed, event_lines: the event feed
clock                 the server's time; watchdog: aborts calls that take too long
transactional_submit  a submit inside the caller's own transaction; outbox: accepts it after the commit
vacuum                removes dead rows from the tables that change most
sql/                  the statements, one file for each table or purpose
"""

from daybreak.stores.postgres import driver as _driver  # noqa: F401 - first: its error says how to install psycopg
from daybreak.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]

"""The PostgreSQL store: any number of machines on one database.

store        the seam: which operation is done how
fast         the calls by which busy programs live, one round trip each (migrations/*-insert*, -exchange*)
ledger       one transaction of everything else, and what it has changed; places, insert, claim, settle, amend,
             pass_time, purge, records and read work on it
gauges       the resources of such a transaction, with all of which it is alone;  share: who waits for them, who may try
crew, link   threads and their connections; now: the caller's own thread; onloop: a worker's loop, without a thread
calls        the short way to the server, for the calls of fast
wake         who waits and who tells them;  clock: the server's time;  within: in someone else's transaction
"""

from daybreak.stores.postgres import driver as _driver  # noqa: F401 - first: it says what to do without psycopg
from daybreak.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]

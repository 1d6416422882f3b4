"""The SQL of the spool: `sql.put_job` is the statement after `-- name: put_job` in sql/spool.sql."""

from __future__ import annotations

from daybreak.stores.sqlite.statements import Statements, statements_in

sql = Statements(statements_in("daybreak.spool", "sql"))

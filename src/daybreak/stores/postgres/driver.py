"""psycopg, or a sentence that says how to get it."""

from daybreak.core.errors import StoreUnsuitable

try:
    import psycopg
except ImportError as missing:
    raise StoreUnsuitable("the PostgreSQL store needs psycopg: pip install 'daybreak[postgres]'") from missing

__all__ = ["psycopg"]

"""Imports psycopg, or raises an error that says how to install it."""

from daybreak.core.errors import StoreUnsuitable

try:
    import psycopg
except ImportError as missing:
    raise StoreUnsuitable("the PostgreSQL store needs psycopg: pip install 'daybreak[postgres]'") from missing

__all__ = ["psycopg"]

"""The cache as people and programs see it: what is known, what it has saved, why a job found nothing, and how to drop
what is known. The Python API, the command line, the server and the report all use these."""

from daybreak.api.cache.changes import clear, invalidate
from daybreak.api.cache.figures import CacheFigures, TaskFigures, cache_figures, savings_of
from daybreak.api.cache.handle import CacheHandle
from daybreak.api.cache.why_missed import CacheWhy, Difference, cache_why

__all__ = [
    "CacheFigures",
    "CacheHandle",
    "CacheWhy",
    "Difference",
    "TaskFigures",
    "cache_figures",
    "cache_why",
    "clear",
    "invalidate",
    "savings_of",
]

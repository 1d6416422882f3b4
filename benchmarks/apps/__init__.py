"""What the workers of a case load: apps whose tasks note when they began. DAYBREAK_BENCH_PLACE names the directory.

Apps of peers on servers (the store is DAYBREAK_BENCH_URL) also say how jobs reach them: `enqueue(numbers)` one after
another, `bulk(numbers)` where there is such a call, `WORKER` as what follows the interpreter, PACKAGES whose versions
are told, and `prepare()` where a schema is needed first."""

BULK_OF = 1000


def portions(numbers: range) -> list[range]:
    return [numbers[start : start + BULK_OF] for start in range(0, len(numbers), BULK_OF)]

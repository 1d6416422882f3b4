"""What the workers of a case load: apps whose tasks note when they began. DAYBREAK_BENCH_PLACE names the directory."""

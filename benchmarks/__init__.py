"""Speed, measured beside others in the same run: `python -m benchmarks`; see README.md for what each figure is."""

"""Runs: groups of jobs submitted together, such as a parameter sweep, with their progress and results as one table."""

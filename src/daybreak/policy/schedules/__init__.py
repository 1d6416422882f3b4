"""Schedules: when they tick, which ticks are fired, and how that is said to people. Everything here is arithmetic."""

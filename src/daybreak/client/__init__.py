"""The async client over any store: submit, find, amend and wait; and what it learns of durations."""

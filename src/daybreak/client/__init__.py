"""The async client of any store: submits, finds, changes and awaits jobs, and collects how long things take."""

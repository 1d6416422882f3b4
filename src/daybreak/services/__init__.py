"""Services that keep the store in order: reaper, scheduler, schedule ticker, janitor. Each has `tick() -> delay`. Any
number of workers may run them at the same time, without a leader."""

"""Services keep the store in order. Each is `tick() -> delay`; any number may run, none leads."""

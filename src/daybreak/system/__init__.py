"""The interface to the surroundings: clocks, sleep, randomness, and the operating system."""

"""What the program takes from its surroundings: clocks, sleep, randomness, and the operating system."""

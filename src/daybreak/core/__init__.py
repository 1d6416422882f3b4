"""The nouns, and arithmetic on them. Pure: no clock, no randomness, no input or output."""

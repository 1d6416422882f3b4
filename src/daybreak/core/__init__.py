"""The data types that every layer shares, and arithmetic on them. Pure: no clock, no randomness, no input or output."""

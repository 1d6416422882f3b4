"""Memory stores with one deliberate bug each."""

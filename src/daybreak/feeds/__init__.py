"""What brings work in from outside: folders into which other programs drop files, and message brokers."""

"""What runs inside a child process: the loops that run jobs, and what jobs report meanwhile."""

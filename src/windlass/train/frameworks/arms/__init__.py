"""Scripts, each run by its path in a process of its own, maybe of another Python."""

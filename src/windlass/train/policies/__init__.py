"""What decides inside a strategy: pure where it can be."""

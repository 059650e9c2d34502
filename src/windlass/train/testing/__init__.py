"""Groups of real processes, replays and faults for tests of strategies."""

"""The parts of the simulation: a loop of virtual time, processes that crash, a cluster that lies
in memory, users over a bad network, and the checkers of what came of it."""

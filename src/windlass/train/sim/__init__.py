"""Networks and devices that are not there: for tests and benchmarks on one machine."""

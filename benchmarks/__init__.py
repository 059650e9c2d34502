"""What Windlass claims about its speed, one file per claim; `python -m benchmarks` runs them."""

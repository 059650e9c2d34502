"""Framework contracts: what each framework needs to find in a rank's environment to start.

Pure and standard library only. Reading order: `base` (the words), `neutral` (what every rank
gets), `python` (the smallest contract, the lesson), `pytorch`, `registry` (how they are found),
`guess`.
"""

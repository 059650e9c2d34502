"""One small network in several frameworks, side by side.

problem.py    the network, its samples and its first weights, in one file for all
race.py       each framework in a process of its own, and what came of them
arms/         what runs there: one script for each; nothing of ours is imported in them
"""

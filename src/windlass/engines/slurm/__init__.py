"""Gangs as Slurm jobs: a step for each node, which runs our worker."""

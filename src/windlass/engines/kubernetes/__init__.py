"""Gangs as pods: one for each node, which runs our worker."""

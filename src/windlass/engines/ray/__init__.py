"""Gangs on Ray: a placement group, and in it an actor for each node, which runs our worker."""

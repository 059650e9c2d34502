"""The mind of a study, pure: what was tried in, what to try next out. No clock, no disk.

history.py     a trial as a study remembers it
draw.py        values of a space: by chance, by grid, changed a little
plan.py        what to do now: create, pause, resume, prune, finish
halving.py     successive halving, asynchronous (ASHA) and synchronous
median.py      median stopping
population.py  population-based training
results.py     best, best so far, who no other beats, what each parameter explains
ensembles.py   which trials together predict best, and with which weights
samplers.py    Optuna's samplers, in a process of their own (`python -m windlass.tune`)
"""

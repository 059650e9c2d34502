"""The catalogue of checkpoints: what there is, which stay, who starts from which.

rules.py       which may go; pure
catalogue.py   rows: register, list, find by a word, mark as going
measured.py    the metrics that a run had at a checkpoint's step
files.py       a job's folder of checkpoints on disk, in which user code may have planted links
cleaning.py    marks what may go, then removes it: any process may die in between
starting.py    what a job starts from: resolved, held, handed to its workers
routes.py      list, show, remove, download
"""

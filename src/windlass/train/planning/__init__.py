"""The planner: which strategy, cut where, on how many workers, and what that gives.

    profile.py     what each block of a model costs (textform.py: PipeDream's published files)
    links.py       how fast the links are; measuring.py and probes.py measure
    states.py      the ways to cut a graph of blocks: its downsets
    problem.py     what PipeDream's programme is to solve; programme.py solves it, threshold.py
                   for thousands of workers, levels.py on nodes of several workers
    question.py    what is asked, and a candidate for an answer
    replicated.py  seconds and bytes of data parallel strategies; flushed.py, stashed.py: of
                   pipelines; served.py: of parameter servers
    choosing.py    the best that fits, and the runner-up
    plan.py        a plan: a file that a person reads, edits and pins
    counting.py    how many workers and servers pay

What needs no model does not import torch: `windlass plan --profile` works without it.
"""

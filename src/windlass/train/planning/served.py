"""Parameter servers: samples a second of workers that each pull, compute and push on their own.

A worker moves its parameters there and back, 2 w over its link; a server does so for p / s workers
when s servers share the parameters. The slower of the two ends is what counts.
"""

from __future__ import annotations

from windlass.train.planning.question import Question


def served_rate(question: Question, servers: int) -> float:
    """Of `ps:async`, when all are alike."""
    workers, batch = question.workers, question.profile.batch
    profile = question.profile.at(question.taken(workers))
    samples = batch if question.shared else batch * workers
    crowd = max(1.0, workers / servers)
    moving = question.link.transfer_ms(profile.parameter_bytes) * crowd
    return 1000 * samples / question.both(profile.time_ms, moving)


def served_bytes(question: Question) -> int:
    """On a worker: parameters, gradients and activations. The optimiser is the servers'."""
    profile = question.profile.at(question.taken(question.workers))
    return 2 * profile.parameter_bytes + sum(block.saved_bytes for block in profile.blocks)

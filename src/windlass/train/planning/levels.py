"""PipeDream's programme on nodes of several workers, with a faster link inside a node.

Solve within one node for every stretch of blocks, A(i→j, w) with w workers on its fast link; then
solve between the nodes, with these as the times of a stage. A stage on r nodes is replicated r
times as often as within its node. When replicas on several nodes sync, each worker of a node
carries a share of what leaves the node, as PipeDream's own optimiser counts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from windlass.train.planning.links import Link
from windlass.train.planning.problem import Piece, Problem
from windlass.train.planning.programme import Table

MOST_STATES = 260
"""The table of every stretch grows with the third power of the states."""


@dataclass(frozen=True)
class Levels:
    pieces: Sequence[Piece]
    slowest_ms: float


def solve_levels(problem: Problem, per_node: int, node_link: Link) -> Levels | None:
    """None where there are too many states to try, or none fits."""
    nodes = problem.workers // per_node
    if problem.count > MOST_STATES or problem.count**3 * per_node**2 > 4e9:
        return None
    faster = node_link.bytes_per_s / problem.link.bytes_per_s
    free = np.where(problem.most_warm >= 0, max(per_node, nodes), -1)
    inner = replace(
        problem, workers=per_node, link=node_link, cut_ms=problem.cut_ms / faster, most_warm=free
    )
    within = Table(inner, np.arange(problem.count))
    times = within.best[:, :, per_node]
    outer = replace(
        problem,
        time_ms=np.where(np.isfinite(times), times, 0.0),
        within=problem.within & np.isfinite(times),
        workers=nodes,
        most_warm=free,
        sync_share=1 / per_node,
    )
    table = Table(outer, np.array([0]))
    pieces = table.pieces(0, problem.count - 1, nodes)
    if pieces is None:
        return None
    flat = []
    for each in pieces:
        for part in within.pieces(each.start, each.end, per_node) or ():
            flat.append(Piece(part.start, part.end, part.replicas * each.replicas))
    return Levels(flat, float(table.best[0, -1, nodes]))

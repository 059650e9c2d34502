"""Which way a metric is better: what the job file says (`metrics.goal: max val_acc`), or what its
name says to everybody."""

from __future__ import annotations

import re
from typing import Literal

Direction = Literal["min", "max"]

_GOAL = re.compile(r"^(min|max) (\S.{0,254})$")
_LESS = frozenset(
    "loss losses err error errors cost perplexity ppl mse rmse mae mape logloss nll wer cer fid "
    "latency time seconds ms divergence kl regret bpb bpc".split()
)
_MORE = frozenset(
    "acc accuracy auc auroc auprc f1 precision recall map ap score reward return bleu rouge iou "
    "dice r2 top1 top5 throughput fps psnr ssim ndcg mrr".split()
)


def parse_goal(text: str) -> tuple[Direction, str]:
    """`max val_acc` as its two parts. Raises ValueError."""
    found = _GOAL.match(text)
    if found is None:
        raise ValueError("`min KEY` or `max KEY`, such as `max val_acc`")
    return ("max" if found[1] == "max" else "min"), found[2]


def direction_of(key: str, goal: str | None = None) -> Direction | None:
    """Which way is better; None where neither the goal nor the name tells."""
    if goal:
        direction, named = parse_goal(goal)
        if named == key:
            return direction
    words = re.findall(r"[a-z]+[0-9]?", re.sub(r"([a-z])([A-Z])", r"\1 \2", key).lower())
    for word in reversed(words):  # `loss_accuracy` is an accuracy
        if word in _LESS:
            return "min"
        if word in _MORE:
            return "max"
    return None

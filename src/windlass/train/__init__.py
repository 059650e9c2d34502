"""Train one network on many processes; `strategy=` says how.

    run = windlass.train.fit(make, strategy="allreduce", workers=4, epochs=10)

Names are loaded at first use. Needs the extra `windlass[torch]`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from windlass.train.data import Batch, Data
    from windlass.train.fitting import Run, fit
    from windlass.train.planning.asking import plan
    from windlass.train.planning.plan import Plan
    from windlass.train.policies.compression import BF16, FP16, OneBit, PowerSGD, TopK
    from windlass.train.policies.filters import Filter
    from windlass.train.registry import strategies
    from windlass.train.report import Report
    from windlass.train.runners.ensemble import combine, networks_of
    from windlass.train.strategy import Strategy
    from windlass.train.task import Task, mean_loss, sum_loss
    from windlass.train.trainer import Trainer

_HOMES = {
    "BF16": "windlass.train.policies.compression",
    "Batch": "windlass.train.data",
    "Data": "windlass.train.data",
    "FP16": "windlass.train.policies.compression",
    "Filter": "windlass.train.policies.filters",
    "OneBit": "windlass.train.policies.compression",
    "Plan": "windlass.train.planning.plan",
    "PowerSGD": "windlass.train.policies.compression",
    "Report": "windlass.train.report",
    "Run": "windlass.train.fitting",
    "Strategy": "windlass.train.strategy",
    "Task": "windlass.train.task",
    "TopK": "windlass.train.policies.compression",
    "Trainer": "windlass.train.trainer",
    "combine": "windlass.train.runners.ensemble",
    "fit": "windlass.train.fitting",
    "mean_loss": "windlass.train.task",
    "networks_of": "windlass.train.runners.ensemble",
    "plan": "windlass.train.planning.asking",
    "strategies": "windlass.train.registry",
    "sum_loss": "windlass.train.task",
}
__all__ = [
    "BF16",
    "Batch",
    "Data",
    "FP16",
    "Filter",
    "OneBit",
    "Plan",
    "PowerSGD",
    "Report",
    "Run",
    "Strategy",
    "Task",
    "TopK",
    "Trainer",
    "combine",
    "fit",
    "mean_loss",
    "networks_of",
    "plan",
    "strategies",
    "sum_loss",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'windlass.train' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

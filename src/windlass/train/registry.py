"""Strategies by name: an entry point of the group `windlass.strategies` that names a class of
`Strategy`.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from windlass.core.errors import InvalidInput
from windlass.core.plugins import Family
from windlass.train.strategy import Strategy

GROUP = "windlass.strategies"
BUILT_IN: dict[str, str] = {
    "adpsgd": "windlass.train.runners.gossip:AdPsgd",
    "allreduce": "windlass.train.runners.collective:AllReduce",
    "blocks": "windlass.train.runners.blocks:Blocks",
    "dpsgd": "windlass.train.runners.gossip:DPsgd",
    "ensemble": "windlass.train.runners.ensemble:Ensemble",
    "hogwild": "windlass.train.runners.hogwild:Hogwild",
    "sgp": "windlass.train.runners.gossip:Sgp",
    "strom": "windlass.train.runners.strom:Strom",
    "easgd:async": "windlass.train.runners.serverstrategies:ElasticAsync",
    "easgd:server": "windlass.train.runners.serverstrategies:ElasticServer",
    "ps:async": "windlass.train.runners.serverstrategies:Async",
    "ps:backup": "windlass.train.runners.serverstrategies:BackupWorkers",
    "ps:pipeline": "windlass.train.runners.grouped:PipelineReplicas",
    "ps:scaled": "windlass.train.runners.serverstrategies:ScaledAsync",
    "ps:softsync": "windlass.train.runners.serverstrategies:SoftSync",
    "ps:ssp": "windlass.train.runners.serverstrategies:StaleSynchronous",
    "ps:tensor": "windlass.train.runners.grouped:TensorReplicas",
    "bmuf": "windlass.train.runners.outer:Bmuf",
    "diloco": "windlass.train.runners.outer:DiLoCo",
    "easgd": "windlass.train.runners.outer:Easgd",
    "local_sgd": "windlass.train.runners.outer:LocalSgd",
    "gpipe": "windlass.train.runners.pipeline:GPipe",
    "1f1b": "windlass.train.runners.pipeline:OneForwardOneBackward",
    "interleaved": "windlass.train.runners.pipeline:Interleaved",
    "zb1p": "windlass.train.runners.pipeline:ZeroBubble",
    "zbv": "windlass.train.runners.pipeline:ZeroBubbleV",
    "pipedream": "windlass.train.runners.pipedream:PipeDream",
    "2bw": "windlass.train.runners.pipedream:TwoBw",
    "fsdp": "windlass.train.runners.fsdp:Fsdp",
    "tensor": "windlass.train.runners.tensor:TensorParallel",
    "zero1": "windlass.train.runners.zero1:Zero1",
}
_STRATEGIES = Family("strategy", GROUP, BUILT_IN)
_AUTO = Family(
    "strategy", "windlass.strategies.auto", {"auto": "windlass.train.planning.auto:Auto"}
)
"""Apart: it is none of them, it chooses one of them."""


def strategies() -> dict[str, str]:
    """Every strategy that can be asked for, with one line each."""
    return {name: line_of(load(name)) for name in known()}


def known() -> list[str]:
    return _STRATEGIES.known()


def line_of(found: type[Strategy]) -> str:
    return (found.__doc__ or "").strip().partition("\n\n")[0].replace("\n    ", " ")


def load(name: str) -> type[Strategy]:
    """Raises InvalidInput with the known names."""
    found: type[Strategy] = (_AUTO if name == "auto" else _STRATEGIES).load(name)
    return found


def choose(strategy: str | Strategy, options: dict[str, Any]) -> Strategy:
    """The strategy with its options. Raises InvalidInput that names the option, what was found and
    what there is."""
    if isinstance(strategy, Strategy):
        if options:
            raise InvalidInput(
                f"{', '.join(sorted(options))}: the strategy is an object already",
                hint=f"give them to {type(strategy).__name__}(…)",
            )
        return strategy
    kind = load(strategy)
    unknown = sorted(set(options) - set(kind.model_fields))
    if unknown:
        there = ", ".join(sorted(kind.model_fields)) or "none"
        raise InvalidInput(
            f"{unknown[0]}: {strategy} has no such option (found {options[unknown[0]]!r})",
            hint=f"its options: {there}",
        )
    try:
        return kind(**options)
    except ValidationError as err:
        first = err.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(
            f"{field or strategy}: {first['msg']} (found {first['input']!r})"
        ) from err

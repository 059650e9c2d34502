"""Engines by name: an entry point of the group `windlass.engines` that names a class or function
giving an `Engine`.
"""

from __future__ import annotations

from collections.abc import Callable

from windlass.core.plugins import Family
from windlass.engines.base import Engine

GROUP = "windlass.engines"
BUILT_IN = {
    "kubernetes": "windlass.engines.kubernetes.engine:KubernetesEngine",
    "local": "windlass.engines.local.engine:LocalEngine",
    "ray": "windlass.engines.ray.engine:RayEngine",
    "slurm": "windlass.engines.slurm.engine:SlurmEngine",
}
_ENGINES = Family("engine", GROUP, BUILT_IN)


def known() -> list[str]:
    return _ENGINES.known()


def load(name: str) -> Callable[..., Engine]:
    """What makes the engine of this name. Raises InvalidInput with the known names."""
    maker: Callable[..., Engine] = _ENGINES.load(name)
    return maker

"""Links between workers, as the planner counts them: `10Gbit`, `200Mbit`, `12.5GB`.

`bit` and `B` are told apart by their case, because a factor of 8 decides plans; k, M, G and T are
powers of 1000 (Ki, Mi, Gi, Ti of 1024), each for a second.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from windlass.core.errors import InvalidInput

_FACTORS = {"k": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
_FACTORS |= {f"{name.upper()}i": 1024 ** (at + 1) for at, name in enumerate(_FACTORS)}
_FORM = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?(k|M|G|T|Ki|Mi|Gi|Ti)?(bit|B)(?:/s)?")
SYNC_FACTOR = 4.0
"""Parameters cross a link so many times when m replicas sync, times (m-1)/m, as PipeDream counts:
gradients out and in, both ways over one link. A ring on links that are as fast both ways at once
needs 2."""


@dataclass(frozen=True)
class Link:
    """`words` is what the user said, or how it was measured."""

    bytes_per_s: float
    words: str
    latency_s: float = 0.0
    sync_factor: float = SYNC_FACTOR

    def sync_ms(self, parameter_bytes: float, replicas: float) -> float:
        """Until `replicas` of a stage have each other's gradients."""
        if replicas <= 1:
            return 0.0
        moved = self.sync_factor * (replicas - 1) / replicas * parameter_bytes
        return 1000 * (moved / self.bytes_per_s + 2 * (replicas - 1) * self.latency_s)

    def transfer_ms(self, activation_bytes: float) -> float:
        """Activations one way, their gradients the other."""
        if not activation_bytes:
            return 0.0
        return 1000 * (2 * activation_bytes / self.bytes_per_s + 2 * self.latency_s)

    def one_way_ms(self, count: float) -> float:
        """Until so many bytes are there."""
        return 1000 * (count / self.bytes_per_s + self.latency_s) if count else 0.0


def parse_link(text: str, field: str = "link") -> Link:
    """Raises InvalidInput that shows what is meant."""
    found = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
    rate = float(found[1]) * _FACTORS.get(found[2] or "", 1) if found else 0.0
    if not found or rate <= 0:
        raise InvalidInput(
            f"{field}: a rate above 0 with its unit (found {text!r})",
            hint="such as 10Gbit, 200Mbit or 12.5GB: bit or B (bytes), a second, after k, M, G, T",
        )
    return Link(rate / 8 if found[3] == "bit" else rate, text.strip())

"""What a push to the servers goes through: `encode` on the worker, `decode` on the server.

    class Rounded(wt.Filter):
        \"\"\"Small whole numbers.\"\"\"

        name = "rounded"
        has_feedback = True
        steps: int = 127

        def encode(self, matrix):
            unit = matrix.abs().max() / self.steps
            return [(matrix / unit.clamp_min(1e-30)).round().to(torch.int8), unit.view(1)]

        def decode(self, parts, like):
            return parts[0].to(like.dtype) * parts[1]

    wt.fit(make, strategy="ps:async", compress=Rounded(), workers=2, servers=1)

The compressors are filters. One of one's own is a subclass: its fields are its options, and the
worker keeps what it loses where it says `has_feedback`. It must be pure: the same numbers give the
same bits, on whichever server, since a second copy decodes for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import model_serializer
from torch import Tensor

from windlass.core.strict import Strict
from windlass.train.policies.codec import Coder

if TYPE_CHECKING:
    from windlass.train.task import Task


class Filter(Strict):
    """The base."""

    name: ClassVar[str] = ""
    has_feedback: ClassVar[bool] = False
    """Whether what is lost in one step must be added in the next."""
    by_column: ClassVar[bool] = False
    """Whether `encode` gets each layer's columns, a row for each of its outputs; else one row of
    all that goes to a range. What a range's edge cuts is two columns."""

    def encode(self, matrix: Tensor) -> list[Tensor]:
        """What to send of it: equally many tensors for every matrix, of memory that nobody else
        changes; the matrix itself will do."""
        raise NotImplementedError

    def decode(self, parts: Sequence[Tensor], like: Tensor) -> Tensor:
        """The matrix again, or what is near it, in the shape and type of `like`."""
        raise NotImplementedError

    def at(self, push: int) -> Coder | None:
        """What codes the n-th push of a worker, from 0. None: it goes whole. Raises InvalidInput
        where there is no form for a push."""
        return self

    def check(self, task: Task, workers: int) -> list[str]:
        """Raises InvalidInput on what cannot work with this task; gives warnings."""
        return []

    @model_serializer
    def words(self) -> str:
        """As in the call that made it, for a report."""
        unusual = [
            f"{name}={getattr(self, name)!r}"
            for name, field in type(self).model_fields.items()
            if getattr(self, name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(unusual)})"

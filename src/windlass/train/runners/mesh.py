"""Where a worker stands among replicas x stages x slices.

    2 replicas of 2 places with 2 slices     replica 0   place 0: workers 0 1    place 1: 2 3
                                             replica 1   place 0: workers 4 5    place 1: 6 7

Slices of one place are neighbours: they talk in every layer, places once in every micro-batch,
replicas once in every step.
"""

from __future__ import annotations

from typing import NamedTuple


class Spot(NamedTuple):
    replica: int
    place: int
    """In the pipeline."""
    slice: int
    """Of the layers that are cut."""


class Mesh(NamedTuple):
    replicas: int
    places: int
    slices: int

    @property
    def per_replica(self) -> int:
        """Workers that hold one model together."""
        return self.places * self.slices

    def spot(self, rank: int) -> Spot:
        replica, inside = divmod(rank, self.per_replica)
        return Spot(replica, *divmod(inside, self.slices))

    def rank(self, spot: Spot) -> int:
        return (spot.replica * self.places + spot.place) * self.slices + spot.slice

    def name(self, spot: Spot) -> str:
        return f"worker {self.rank(spot)}"

    def alike(self, spot: Spot) -> list[str]:
        """Those of the same place, with one slice each, in the order of slices."""
        return [self.name(spot._replace(slice=n)) for n in range(self.slices)]

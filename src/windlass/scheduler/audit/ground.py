"""The auditor's own account of the nodes: what each has, who sits where, and what would fit.

Written for being evidently right: nothing is shared with the scheduler's own index. Amounts of a
node that takes nothing new count as no room. `fits` answers True, False, or None where an exact
answer would take a search (several roles that compete for the same nodes).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from windlass.scheduler.events import Need, Offer, Seat, Submit

Ints = NDArray[np.int64]
WHOLE = 1000
HUGE = 1 << 62
LEVELS = ("", "block", "rack", "host")


def admission(need: Need) -> int:
    """How many members of a role must start together."""
    return need.minimum or need.count


def gpu_milli(need: Need) -> int:
    return need.gpus * WHOLE or need.gpu_milli


def each_gpu(need: Need) -> int:
    """What a member takes of each device that is its own."""
    return WHOLE if need.gpus else need.gpu_milli


class Free:
    """What would be free on every node, now or in a what-if. Devices that are not there are -1."""

    __slots__ = ("cpus", "memory", "slots", "gpu")

    def __init__(self, cpus: Ints, memory: Ints, slots: Ints, gpu: Ints) -> None:
        self.cpus, self.memory, self.slots, self.gpu = cpus, memory, slots, gpu

    def copy(self) -> Free:
        return Free(self.cpus.copy(), self.memory.copy(), self.slots.copy(), self.gpu.copy())

    def add(self, node: int, need: Need, seat: Seat, sign: int = 1) -> None:
        self.cpus[node] += sign * need.cpus_milli
        self.memory[node] += sign * need.memory_bytes
        self.slots[node] += sign * need.slots
        for device in seat.gpus:
            if 0 <= device < self.gpu.shape[1]:
                self.gpu[node, device] += sign * each_gpu(need)

    def room(self, need: Need) -> Ints:
        """How many such members each node could take."""
        most = np.full(len(self.cpus), HUGE, dtype=np.int64)
        for have, want in (
            (self.cpus, need.cpus_milli),
            (self.memory, need.memory_bytes),
            (self.slots, need.slots),
        ):
            if want:
                np.minimum(most, have // want, out=most)
        if need.gpus:
            np.minimum(most, (self.gpu >= WHOLE).sum(axis=1) // need.gpus, out=most)
        elif need.gpu_milli:
            shares = np.maximum(self.gpu, 0) // need.gpu_milli
            np.minimum(most, shares.sum(axis=1), out=most)
        return np.maximum(most, 0)


class Ground:
    """Every node that was ever offered, by number."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.index: dict[str, int] = {}
        self.offers: list[Offer] = []
        self.taken: list[dict[tuple[str, Seat], Need]] = []
        """Who sits on each node."""
        self.total = {"cpus": 0, "memory": 0, "gpus": 0}
        """What is taken of all nodes together."""
        self.moved: set[int] = set()
        """Nodes on which anything changed since this was last emptied."""
        self._domains: dict[str, Ints] = {}
        self._all_columns = np.zeros((6, 16), dtype=np.int64)  # capacity of 3, used of 3
        self._all_devices = np.zeros((2, 16, 0), dtype=np.int64)  # capacity, used
        self._all_up = np.zeros(16, dtype=np.bool_)
        self._view()

    def __len__(self) -> int:
        return len(self.names)

    def node_up(self, offer: Offer) -> bool:
        """Whether anything that was there is there no more."""
        node = self.index.get(offer.name)
        shrunk = False
        if node is None:
            node = self._new(offer)
        else:
            old = self.offers[node]
            shrunk = (
                offer.cpus_milli < old.cpus_milli
                or offer.memory_bytes < old.memory_bytes
                or offer.gpus < old.gpus
                or offer.slots < old.slots
                or offer.gpu_model != old.gpu_model
                or not set(offer.labels) >= set(old.labels)
                or (offer.rack, offer.block, offer.pool) != (old.rack, old.block, old.pool)
            )
        self.offers[node] = offer
        self.moved.add(node)
        self.up[node] = True
        self._columns[:3, node] = (offer.cpus_milli, offer.memory_bytes, offer.slots)
        self._wide(offer.gpus)
        self._devices[0, node, :] = -1
        self._devices[0, node, : offer.gpus] = WHOLE
        self._domains.clear()
        return shrunk

    def node_down(self, name: str) -> None:
        node = self.index.get(name)
        if node is not None:
            self.moved.add(node)
            self.up[node] = False

    def take(self, job_id: str, need: Need, seat: Seat) -> None:
        self._move(job_id, need, seat, 1)

    def give(self, job_id: str, need: Need, seat: Seat) -> None:
        self._move(job_id, need, seat, -1)

    def held_at(self, node: int) -> Iterable[tuple[str, Need, Seat]]:
        return [(job_id, need, seat) for (job_id, seat), need in self.taken[node].items()]

    def owed(self, node: int, need: Need, seat: Seat) -> list[str]:
        """What this seat uses that the node has not: what is wrong, in words."""
        found = []
        have: list[int] = self._columns[:, node].tolist()
        for place, (word, want) in enumerate(
            (("cpus", need.cpus_milli), ("memory", need.memory_bytes), ("slots", need.slots))
        ):
            if want and have[3 + place] > have[place]:
                found.append(f"{have[3 + place]} of {have[place]} {word}")
        for device in seat.gpus:
            if not 0 <= device < self.offers[node].gpus:
                found.append(f"device {device} of {self.offers[node].gpus}")
            elif self._devices[1, node, device] > WHOLE:
                found.append(f"{self._devices[1, node, device]} of 1000 of device {device}")
        return found

    def free(self) -> Free:
        """What the nodes that are up could still take (a fresh copy)."""
        rest = self._columns[:3] - self._columns[3:]
        gpu = np.where(self._devices[0] < 0, -1, self._devices[0] - self._devices[1])
        if not self.up.all():
            rest[:, ~self.up] = 0
            gpu[~self.up] = -1
        return Free(rest[0], rest[1], rest[2], gpu)

    def empty(self, *, down_too: bool = False) -> Free:
        """What would be free if nobody held anything."""
        rest, gpu = self._columns[:3].copy(), self._devices[0].copy()
        if not down_too:
            rest[:, ~self.up] = 0
            gpu[~self.up] = -1
        return Free(rest[0], rest[1], rest[2], gpu)

    def used(self) -> tuple[Ints, Ints, Ints, Ints]:
        return self._columns[3], self._columns[4], self._columns[5], self._devices[1]

    def capacity(self) -> tuple[Ints, Ints, Ints, Ints]:
        return self._columns[0], self._columns[1], self._columns[2], self._devices[0]

    def allowed(self, need: Need) -> NDArray[np.bool_]:
        """Where the need's GPU model and labels are."""
        if not need.gpu_models and not need.labels:
            return np.ones(len(self), dtype=np.bool_)
        models, labels = need.gpu_models, set(need.labels)
        return np.array(
            [
                (not models or offer.gpu_model in models) and labels.issubset(offer.labels)
                for offer in self.offers
            ],
            np.bool_,
        )

    def domains(self, level: str) -> Ints:
        """The number of each node's domain. A gang never spans two pools, so "" is the pool;
        nodes that do not say their rack share one with all such nodes of their block."""
        if level not in self._domains:
            known: dict[tuple[str, ...], int] = {}
            codes = []
            for offer in self.offers:
                address = (offer.pool, offer.block, offer.rack, offer.name)
                domain = address[: 1 + LEVELS.index(level)]
                codes.append(known.setdefault(domain, len(known)))
            self._domains[level] = np.array(codes, dtype=np.int64)
        return self._domains[level]

    def fits(
        self, job: Submit, free: Free, *, only: NDArray[np.bool_] | None = None
    ) -> bool | None:
        """Whether the gang at its smallest could be seated in what is free. None: cannot tell."""
        return self.fits_at(job, free, job.level if job.required else "", only)

    def fits_at(
        self, job: Submit, free: Free, level: str, only: NDArray[np.bool_] | None = None
    ) -> bool | None:
        """The same, with all members in one domain of `level` ("": anywhere)."""
        domains = self.domains(level)
        rooms = []
        for need in job.needs:
            room = np.where(self.allowed(need), free.room(need), 0)
            rooms.append(room if only is None else np.where(only, room, 0))
        count = int(domains.max(initial=-1)) + 1
        if count == 0:
            return False
        possible = np.ones(count, dtype=np.bool_)
        for need, room in zip(job.needs, rooms, strict=True):
            room = np.minimum(room, admission(need))  # so that no sum overflows
            sums = np.bincount(domains, weights=room, minlength=count)
            possible &= sums >= admission(need)
        if not possible.any():
            return False
        if len(job.needs) == 1:
            return True
        for domain in np.flatnonzero(possible):
            inside = domains == domain
            if self._greedy(job.needs, free, inside if only is None else inside & only):
                return True
        return None

    def project(self, free: Free, seats: Iterable[tuple[Need, Seat]], sign: int = 1) -> Free:
        """`free` as if these seats were given back (1) or taken (-1)."""
        for need, seat in seats:
            node = self.index[seat.node]
            if self.up[node]:
                free.add(node, need, seat, sign)
        return free

    def _greedy(self, needs: Sequence[Need], free: Free, only: NDArray[np.bool_]) -> bool:
        trial = free.copy()
        for need in sorted(needs, key=lambda n: (-gpu_milli(n), -n.cpus_milli, -n.memory_bytes)):
            missing = admission(need)
            room = np.where(self.allowed(need) & only, trial.room(need), 0)
            for node in np.flatnonzero(room):
                many = min(missing, int(room[node]))
                for _ in range(many):
                    seat = Seat("", 0, "", tuple(_devices(need, trial.gpu[node])))
                    trial.add(int(node), need, seat, -1)
                missing -= many
                if not missing:
                    break
            if missing:
                return False
        return True

    def _new(self, offer: Offer) -> int:
        node = self.index[offer.name] = len(self.names)
        self.names.append(offer.name)
        self.offers.append(offer)
        self.taken.append({})
        if node >= len(self._all_up):
            self._all_columns = np.pad(self._all_columns, ((0, 0), (0, node)))
            self._all_devices = np.pad(self._all_devices, ((0, 0), (0, node), (0, 0)))
            self._all_up = np.pad(self._all_up, (0, node))
        self._all_devices[0, node, :] = -1
        self._view()
        return node

    def _view(self) -> None:
        size = len(self.names)
        self._columns = self._all_columns[:, :size]
        self._devices = self._all_devices[:, :size]
        self.up = self._all_up[:size]

    def _wide(self, gpus: int) -> None:
        more = gpus - self._all_devices.shape[2]
        if more > 0:
            self._all_devices = np.pad(self._all_devices, ((0, 0), (0, 0), (0, more)))
            self._all_devices[0, :, -more:] = -1
            self._view()

    def _move(self, job_id: str, need: Need, seat: Seat, sign: int) -> None:
        node = self.index[seat.node]
        if sign > 0:
            self.taken[node][job_id, seat] = need
        else:
            self.taken[node].pop((job_id, seat), None)
        self.moved.add(node)
        self.total["cpus"] += sign * need.cpus_milli
        self.total["memory"] += sign * need.memory_bytes
        self._columns[3, node] += sign * need.cpus_milli
        self._columns[4, node] += sign * need.memory_bytes
        self._columns[5, node] += sign * need.slots
        each = sign * each_gpu(need)
        for device in seat.gpus:
            if device >= 0:
                if device >= self._devices.shape[2]:
                    self._wide(device + 1)
                self._devices[1, node, device] += each
                self.total["gpus"] += each


def _devices(need: Need, gpu: Ints) -> Iterator[int]:
    """The fullest devices that will do."""
    want, many = (WHOLE, need.gpus) if need.gpus else (need.gpu_milli, int(bool(need.gpu_milli)))
    if not many:
        return
    order = sorted((int(rest), device) for device, rest in enumerate(gpu) if rest >= want)
    yield from (device for _, device in order[:many])

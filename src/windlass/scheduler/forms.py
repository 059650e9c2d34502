"""What a gang wishes, as one object for all gangs that wish the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from weakref import WeakValueDictionary

from windlass.scheduler.columns import DEVICE, Shape
from windlass.scheduler.events import Need

_KNOWN = 1024


class Charging(Protocol):
    """Whoever counts resources: the tree of quotas."""

    def amounts(self, of: Mapping[str, int]) -> tuple[int, ...]: ...


class Form:
    """What a gang wishes, at the size that is needed to admit it. Equal wishes are one object."""

    __slots__ = (
        "asked",
        "could",
        "cpus_milli",
        "elastic",
        "gpu_milli",
        "level",
        "members",
        "memory_bytes",
        "needs",
        "parts",
        "refused",
        "required",
        "shares",
        "_charged",
        "_charged_by",
        "__weakref__",
    )

    def __init__(
        self, needs: tuple[Need, ...], level: str, required: bool, shapes: Sequence[Shape]
    ) -> None:
        self.needs = needs
        self.level = level
        self.required = required
        counts = [need.minimum or need.count for need in needs]
        self.parts = tuple(zip(shapes, counts, strict=True))
        self.members = sum(counts)
        pairs = list(zip(needs, counts, strict=True))
        self.gpu_milli = sum(n * (need.gpus * DEVICE + need.gpu_milli) for need, n in pairs)
        self.cpus_milli = sum(n * need.cpus_milli for need, n in pairs)
        self.memory_bytes = sum(n * need.memory_bytes for need, n in pairs)
        self.elastic = next((at for at, need in enumerate(needs) if need.minimum), -1)
        """Which of the needs may grow; -1: none."""
        self.refused = -1
        """When it was last found not to fit, as a count of what was given back by then."""
        self.asked = -1
        """When it was last asked whether it fits, as a count of changes, and the answer."""
        self.could = False
        self.shares = any(need.gpu_milli for need in needs)
        self._charged: tuple[int, ...] = ()
        self._charged_by: object = None

    def charged(self, by: Charging) -> tuple[int, ...]:
        """What a gang of this form is charged when it starts, model quotas aside."""
        if self._charged_by is not by:
            self._charged_by = by
            self._charged = by.amounts(
                {"gpus": self.gpu_milli, "cpus": self.cpus_milli, "memory": self.memory_bytes}
            )
        return self._charged

    @property
    def highest(self) -> str:
        """The highest level of topology it may spread over; "": any."""
        return self.level if self.required else ""


class Forms:
    """One object for equal wishes. Most are asked for again with the very same needs, so these
    are found by identity first."""

    def __init__(self) -> None:
        self.shapes: dict[tuple[object, ...], Shape] = {}
        self._forms: WeakValueDictionary[tuple[object, ...], Form] = WeakValueDictionary()
        self._form_of: dict[tuple[int, str, bool], tuple[Sequence[Need], Form]] = {}
        self._shape_of: dict[int, tuple[Need, Shape]] = {}

    def form(self, needs: Sequence[Need], level: str, required: bool) -> Form:
        known = self._form_of.get((id(needs), level, required))
        if known is not None and known[0] is needs:
            return known[1]
        key = (tuple(needs), level, required)
        form = self._forms.get(key)
        if form is None:
            shapes = [self.shape(need) for need in needs]
            form = self._forms[key] = Form(key[0], level, required, shapes)
        if len(self._form_of) >= _KNOWN:
            self._form_of.clear()
        self._form_of[id(needs), level, required] = (needs, form)
        return form

    def shape(self, need: Need) -> Shape:
        """What one member wants of its node."""
        known = self._shape_of.get(id(need))
        if known is not None and known[0] is need:
            return known[1]
        key = (
            need.cpus_milli, need.memory_bytes, need.slots, need.gpus, need.gpu_milli,
            need.gpu_models, need.labels,
        )  # fmt: skip
        shape = self.shapes.get(key)
        if shape is None:
            shape = self.shapes[key] = Shape(need)
        if len(self._shape_of) >= _KNOWN:
            self._shape_of.clear()
        self._shape_of[id(need)] = (need, shape)
        return shape

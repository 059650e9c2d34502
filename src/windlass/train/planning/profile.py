"""What each block of a model costs: time, bytes that leave it, parameters, what backward needs.

A file of it is JSON (`Profile.save`), or PipeDream's published text form (`textform.py`):
`read_profile` takes both. Blocks stand in an order in which they can be executed; an edge (i, j)
says that block j uses what block i gives, so i < j, and skips are edges like any other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from windlass.core.errors import InvalidInput
from windlass.core.strict import MAX_INT

FORM = 1
MOST_BLOCKS = 20_000
Milliseconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Bytes = Annotated[int, Field(ge=0, le=MAX_INT)]
_STRICT = ConfigDict(strict=True, extra="forbid")


@dataclass(frozen=True)
class BlockCost:
    """Of one batch. `activation_bytes` leave the block; `saved_bytes` wait in it for backward.

    Of the layers that tensor parallelism cuts: `cut_ms` of the time and `cut_bytes` of the
    parameters are theirs; `sums` of `summed_bytes` in all stand behind them and before them.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    name: Annotated[str, Field(min_length=1, max_length=4096)]
    forward_ms: Milliseconds
    backward_ms: Milliseconds
    activation_bytes: Bytes
    parameter_bytes: Bytes
    saved_bytes: Bytes
    cut_ms: Milliseconds = 0.0
    cut_bytes: Bytes = 0
    summed_bytes: Bytes = 0
    sums: Bytes = 0

    @property
    def time_ms(self) -> float:
        return self.forward_ms + self.backward_ms


@dataclass(frozen=True)
class BatchTimes:
    """The times of all blocks at another batch: time is not linear in the batch."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    batch: Annotated[int, Field(ge=1, le=MAX_INT)]
    forward_ms: tuple[Milliseconds, ...]
    backward_ms: tuple[Milliseconds, ...]


@dataclass(frozen=True)
class Profile:
    """Raises InvalidInput where the parts do not belong together.

    `optimiser_factor`: bytes that the optimiser keeps for each byte of parameters (0 plain SGD,
    1 with momentum, 2 Adam). `others`: times at further batches. `input_bytes`: what the first
    blocks are given. `slices`: the layers that can be cut make as many equal slices, and as many
    as any divisor of it; 0 where there are none, or nobody looked.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    batch: Annotated[int, Field(ge=1, le=MAX_INT)]
    blocks: Annotated[tuple[BlockCost, ...], Field(min_length=1, max_length=MOST_BLOCKS)]
    edges: tuple[tuple[int, int], ...]
    optimiser_factor: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)] = 1.0
    others: tuple[BatchTimes, ...] = ()
    input_bytes: Bytes = 0
    slices: Bytes = 0

    def __post_init__(self) -> None:
        if not self.blocks:
            raise InvalidInput("blocks: at least one (found none)")
        count = len(self.blocks)
        for at, (start, end) in enumerate(self.edges):
            if not 0 <= start < end < count:
                raise InvalidInput(
                    f"edges[{at}]: from a block to a later one, of 0 to {count - 1} "
                    f"(found [{start}, {end}])"
                )
        for at, block in enumerate(self.blocks):
            if block.cut_ms > block.time_ms * (1 + 1e-9) or (
                block.cut_bytes > block.parameter_bytes
            ):
                raise InvalidInput(
                    f"blocks[{at}].cut_ms, cut_bytes: a part of its time and parameters, "
                    f"{block.time_ms:g} ms and {block.parameter_bytes} (found {block.cut_ms:g} ms "
                    f"and {block.cut_bytes})"
                )
        for at, other in enumerate(self.others):
            for field in ("forward_ms", "backward_ms"):
                if len(getattr(other, field)) != count:
                    raise InvalidInput(
                        f"others[{at}].{field}: one time for each of the {count} blocks "
                        f"(found {len(getattr(other, field))})"
                    )

    @property
    def time_ms(self) -> float:
        """Of one batch on one worker, forward and backward."""
        return sum(block.time_ms for block in self.blocks)

    @property
    def parameter_bytes(self) -> int:
        return sum(block.parameter_bytes for block in self.blocks)

    def at(self, batch: float) -> Profile:
        """The same blocks at another batch: times on the line through the two nearest batches that
        were measured (in proportion where there is one alone), bytes in proportion."""
        if batch == self.batch:
            return self
        share = batch / self.batch
        blocks = tuple(
            replace(
                block,
                forward_ms=forward,
                backward_ms=backward,
                activation_bytes=round(block.activation_bytes * share),
                saved_bytes=round(block.saved_bytes * share),
                cut_ms=block.cut_ms * _ratio(forward + backward, block.time_ms),
                summed_bytes=round(block.summed_bytes * share),
            )
            for block, forward, backward in zip(
                self.blocks,
                self._times("forward_ms", batch),
                self._times("backward_ms", batch),
                strict=True,
            )
        )
        return replace(
            self, batch=max(1, round(batch)), blocks=blocks, others=(),
            input_bytes=round(self.input_bytes * share),
        )  # fmt: skip

    def _times(self, field: str, batch: float) -> list[float]:
        known: dict[int, Sequence[float]] = {
            other.batch: getattr(other, field) for other in self.others
        }
        known[self.batch] = [getattr(block, field) for block in self.blocks]
        if len(known) == 1:
            return [each * batch / self.batch for each in known[self.batch]]
        low, high = sorted(sorted(known, key=lambda each: (abs(each - batch), each))[:2])
        found = []
        for small, large in zip(known[low], known[high], strict=True):
            slope = max(0.0, (large - small) / (high - low))
            start = small - slope * low
            if start < 0:  # noise: through the origin and the larger one
                slope, start = large / high, 0.0
            found.append(start + slope * batch)
        return found

    def to_json(self) -> dict[str, Any]:
        return {"windlass_profile": FORM, **asdict(self)}

    def save(self, path: str | Path) -> Path:
        where = Path(path)
        where.write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")
        return where


_ADAPTER: TypeAdapter[Profile] = TypeAdapter(Profile)


def read_profile(path: str | Path, *, batch: int | None = None) -> Profile:
    """Of either form. `batch` is what the times were taken at, where the file does not say it.
    Raises InvalidInput that names line or field, what was found, and what is meant."""
    from windlass.train.planning.textform import parse

    where = Path(path)
    try:
        text = where.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as err:
        raise InvalidInput(f"{path}: it is not UTF-8 text") from err
    except OSError as err:
        raise InvalidInput(f"{path}: it cannot be read: {err.strerror or err}") from err
    if not text.strip():
        raise InvalidInput(f"{path}: it is empty")
    if text.lstrip().startswith(("{", "[")):
        return _from_json(text, str(path))
    return parse(text, str(path), batch=batch)


def _from_json(text: str, path: str) -> Profile:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise InvalidInput(f"{path}: it is not JSON: {err}") from err
    if not isinstance(data, dict) or data.pop("windlass_profile", None) != FORM:
        raise InvalidInput(
            f"{path}: windlass_profile: {FORM} (found something else)",
            hint="a profile of ours is an object that says so; Profile.save(path) writes one",
        )
    blocks = data.get("blocks")
    if "edges" not in data and isinstance(blocks, list):
        data["edges"] = [[at, at + 1] for at in range(len(blocks) - 1)]
    try:
        found = _ADAPTER.validate_json(json.dumps(data))
    except ValidationError as err:
        first = err.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(
            f"{path}: {field}: {first['msg']} (found {_short(first['input'])})"
        ) from err
    except InvalidInput as err:
        raise InvalidInput(f"{path}: {err.message}", hint=err.hint) from err
    apart = unconnected(len(found.blocks), found.edges)
    if apart is not None:
        raise InvalidInput(
            f"{path}: edges: no edge leads from {found.blocks[0].name!r} to "
            f"{found.blocks[apart].name!r}, over any others: these are two models"
        )
    return found


def unconnected(count: int, edges: Iterable[tuple[int, int]]) -> int | None:
    """A node that is not connected with node 0, whatever the direction; None: all are."""
    near: list[list[int]] = [[] for _ in range(count)]
    for start, end in edges:
        near[start].append(end)
        near[end].append(start)
    seen, heap = {0}, [0]
    while heap:
        for each in near[heap.pop()]:
            if each not in seen:
                seen.add(each)
                heap.append(each)
    return next((at for at in range(count) if at not in seen), None)


def _ratio(value: float, before: float) -> float:
    return value / before if before else 0.0


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"

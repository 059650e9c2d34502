"""What recomputation saves on one GPU: peak memory against the formula and against torch's plain
loop, and the deepest network that trains in a fixed amount of memory.

GPipe's claim is 25 times the depth on eight accelerators; this is one, so it shows micro-batches
and recomputation alone, and no scaling.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.measure import Row
from windlass.train import Data, Task, fit, sum_loss
from windlass.train.planning.measuring import measure as profile_of

WIDTH, WORDS, BATCH = 512, 128, 64
CAP = 8 * 2**30
DEPTH = 16
MICRO = 32


class _Net(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.1, batch_first=True)
            for _ in range(depth)
        )
        self.head = nn.Linear(WIDTH, 64)

    def forward(self, words: Tensor) -> Tensor:
        hidden = self.embed(words)
        for layer in self.layers:
            hidden = layer(hidden)
        found: Tensor = self.head(hidden)
        return found


def task_of(depth: int) -> Task:
    words = torch.randint(0, 64, (2 * BATCH, WORDS), generator=torch.Generator().manual_seed(0))
    model = _Net(depth)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="sum")

    return Task(
        model=model,
        loss=sum_loss(loss, count="elements"),
        optimizer=torch.optim.SGD(model.parameters(), 0.01),
        data=Data((words, words), BATCH),
        blocks=list(model.layers),
    )


def _plain(depth: int) -> int:
    """The loop that anybody would write; its peak of memory."""
    task = task_of(depth)
    task.model.cuda()
    _forget()
    for step in range(3):
        batch = task.data.batch(task.data.at(step), device=torch.device("cuda"))
        task.optimizer.zero_grad()
        total, count = task.loss_of(batch.content)
        (total / count).backward()  # type: ignore[no-untyped-call]
        task.optimizer.step()
    return int(torch.cuda.max_memory_allocated())


def _piped(depth: int, recompute: bool) -> int:
    _forget()
    fit(
        lambda: task_of(depth), "gpipe", workers=1, steps=3, device="cuda", progress=False,
        micro_batches=MICRO, recompute=recompute, balance="blocks",
    )  # fmt: skip
    return int(torch.cuda.max_memory_allocated())


def _forget() -> None:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def _deepest(peak: Callable[[int], int]) -> int:
    def fits(depth: int) -> bool:
        try:
            peak(depth)
        except torch.OutOfMemoryError:
            return False
        finally:
            _forget()
        return True

    least, most = 1, 2
    while fits(most):
        least, most = most, 2 * most
    while most - least > max(1, least // 32):
        middle = (least + most) // 2
        least, most = (middle, most) if fits(middle) else (least, middle)
    return least


def _static(depth: int) -> int:
    """Parameters and gradients."""
    with torch.device("meta"):
        model = _Net(depth)
    return 2 * sum(each.numel() * 4 for each in model.parameters())


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f} GiB"


def measure() -> list[Row]:
    if not torch.cuda.is_available():
        raise RuntimeError("there is no CUDA device here")
    profile = profile_of(task_of(DEPTH), "cuda", batches=(BATCH,))
    saved = sum(each.saved_bytes for each in profile.blocks)
    plain, micro, again = _plain(DEPTH), _piped(DEPTH, False), _piped(DEPTH, True)
    static = _static(DEPTH)
    formulas = {
        "plain loop": (plain, static + saved),
        f"gpipe, {MICRO} micro-batches": (micro, static + saved),
        f"gpipe, {MICRO} micro-batches, recomputed": (
            again, static + profile.input_bytes + saved / MICRO,
        ),
    }  # fmt: skip
    rows = [
        Row(
            f"{name}: peak memory of {DEPTH} layers (parameters, gradients and what is saved)",
            _gib(found), _gib(formula), f"{found / formula:.2f}x", "≤ 1.25x",
            found <= 1.25 * formula,
        )
        for name, (found, formula) in formulas.items()
    ]  # fmt: skip
    rows.append(
        Row(
            f"recomputation on one GPU: peak memory of {DEPTH} layers (plain loop)",
            _gib(again), _gib(plain), f"{again / plain:.2f}x", "", None,
        )
    )  # fmt: skip
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(CAP / whole)
    deep, usual = _deepest(lambda depth: _piped(depth, True)), _deepest(_plain)
    torch.cuda.set_per_process_memory_fraction(1.0)
    rows.append(
        Row(
            f"deepest network that trains in {CAP >> 30} GiB: layers (plain loop)",
            f"{deep}", f"{usual}", f"{deep / usual:.1f}x", "", None,
        )
    )  # fmt: skip
    return rows

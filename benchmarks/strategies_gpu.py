"""What one GPU can show: every strategy that takes CUDA tensors trains there and learns as it does
on the CPU; what compressing a gradient costs, and below which bandwidth it pays.

One GPU proves kernels, memory and correctness; it cannot prove scaling, and nothing here does:
two workers share it through gloo, since NCCL refuses two ranks on one device.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.measure import Row, table
from windlass.core.errors import WindlassError
from windlass.train import Data, Task, fit, sum_loss
from windlass.train.fitting import Plan, train_and_tell
from windlass.train.group import Group
from windlass.train.registry import choose, known

GRADIENT = 64 * 2**20  # elements: 256 MB in float32
STEPS = 60


def measure() -> list[Row]:
    if not torch.cuda.is_available():
        raise RuntimeError("there is no CUDA device here")
    return [*_against_plain(), *_strategies(), *_compressors()]


def make() -> Task:
    """A small transformer that learns to add two digits, at a size that keeps a GPU busy."""
    dice = torch.Generator().manual_seed(0)
    words = torch.randint(0, 16, (4096, 32), generator=dice)
    model = _Net()
    return Task(
        model=model,
        loss=sum_loss(functional.cross_entropy, reduction="sum"),
        optimizer=torch.optim.SGD(model.parameters(), 0.05),
        data=Data((words, words.sum(1) % 10), 256, seed=1),
    )


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, 256)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(256, 10)

    def forward(self, words: Tensor) -> Tensor:
        hidden: Tensor = self.body(self.embed(words)).mean(1)
        logits: Tensor = self.head(hidden)
        return logits


def _against_plain(turns: int = 5) -> list[Row]:
    """One worker through `fit` against the loop that anybody would write."""
    ours, peer = [], []
    for turn in range(turns + 1):
        seconds = fit(make, "allreduce", steps=STEPS, progress=False, device="cuda").result.seconds
        plain = _plain()
        if turn:
            ours.append(STEPS / seconds)
            peer.append(STEPS / plain)
    ratio = statistics.median(a / b for a, b in zip(ours, peer, strict=True))
    return [
        Row(
            "one worker on a GPU against a plain loop: steps a second",
            f"{statistics.median(ours):.0f}/s", f"{statistics.median(peer):.0f}/s",
            f"{ratio:.2f}x", "≥ 0.98x", ratio >= 0.98,
        )
    ]  # fmt: skip


def _plain() -> float:
    torch.manual_seed(0)
    task = make()
    task.model.cuda()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for step in range(STEPS):
        batch = task.data.batch(task.data.at(step), device=torch.device("cuda"))
        task.optimizer.zero_grad()
        total, count = task.loss_of(batch.content)
        (total / count).backward()  # type: ignore[no-untyped-call]
        task.optimizer.step()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def _strategies() -> list[Row]:
    there, here = _each("cuda"), _each("cpu")
    return [
        Row(
            f"`{name}`, 2 workers on one GPU (on the CPU): last loss; steps a second",
            there[name], here[name], "", "", None,
        )
        for name in there
    ]  # fmt: skip


def _each(device: str) -> dict[str, str]:
    """By strategy what came of it; a refusal is an answer, too. Processes are started once for
    those with a server and once for those without."""
    found = {}
    for servers in (0, 1):
        with Group(2, servers, device=device, deadline_seconds=60) as group:
            for name in known():
                strategy = choose(name, {})
                if strategy.has_servers is not bool(servers) or strategy.places_model:
                    continue  # those that cut the network: `pipelines_gpu`
                plan = Plan(make, strategy, None, STEPS, None, None, None, False, False)
                try:
                    told = group.call(train_and_tell, plan, timeout_seconds=90)
                    workers = [each.report for who, each in told.items() if who[0] == "w"]
                    report = max(workers, key=lambda each: len(each.losses))  # a last stage's
                    rate = report.steps / report.seconds
                    found[name] = f"{_last(report.losses):.3f}; {rate:.0f}/s"
                except WindlassError as err:
                    found[name] = str(err).splitlines()[0][:90]
    return found


def _last(losses: tuple[object, ...]) -> float:
    return statistics.mean(point.loss for point in losses[-10:])  # type: ignore[attr-defined]


def _compressors() -> list[Row]:
    from windlass.train import BF16, FP16, OneBit, TopK

    gradient = torch.randn(4096, GRADIENT // 4096, device="cuda")
    size = gradient.numel() * 4
    rows = []
    for compressor in (OneBit(), TopK(), FP16(), BF16()):
        codec = compressor.codec()
        parts = codec.encode(gradient)
        sent = sum(part.numel() * part.element_size() for part in parts)
        there = _timed(lambda codec=codec: codec.encode(gradient))  # type: ignore[misc]
        back = _timed(lambda codec=codec, parts=parts: codec.decode(parts, gradient))  # type: ignore[misc]
        saved = (size - sent) / (there + back)
        rows.append(
            Row(
                f"`{type(compressor).__name__}` of 256 MB: compress, decompress; bytes",
                f"{size / there / 1e9:.0f}, {size / back / 1e9:.0f} GB/s", f"{sent / 1e6:.1f} MB",
                f"pays below {saved * 8 / 1e9:.0f} Gbit/s", "", None,
            )
        )  # fmt: skip
    return rows


def _timed(call: Callable[[], object]) -> float:
    found = []
    for turn in range(8):
        torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        torch.cuda.synchronize()
        if turn > 2:
            found.append(time.perf_counter() - started)
    return statistics.median(found)


if __name__ == "__main__":
    print(table(measure()))

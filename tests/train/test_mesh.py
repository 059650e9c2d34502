"""1.13: data x pipeline x tensor is one process, in every cell and under every schedule."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from meshes import BY_NAME, mesh_task
from pipelines import trained
from torch import Tensor, nn
from torch.nn import functional

from windlass.core.errors import InvalidInput
from windlass.train import registry
from windlass.train.data import Data
from windlass.train.runners.mesh import Mesh, Spot
from windlass.train.task import Task, sum_loss
from windlass.train.testing.tasks import alone, flat
from windlass.train.testing.town import Town

CELLS = [(data, pipe, tensor) for data in (1, 2) for pipe in (1, 2, 3) for tensor in (1, 2)]


@pytest.fixture(scope="module")
def towns() -> Iterator[Callable[[int], Town]]:
    """One of each size, for all tests."""
    made: dict[int, Town] = {}

    def find(workers: int) -> Town:
        if workers not in made:
            made[workers] = Town(workers, 0, silent_seconds=30.0)
        return made[workers]

    yield find
    for town in made.values():
        town.close()


def expected(make: Callable[[], Task], steps: int = 3) -> Tensor:
    return flat(alone(make(), steps).model)


def same(found: Tensor, wanted: Tensor) -> bool:
    return torch.allclose(found, wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize(("data", "pipe", "tensor"), CELLS)
def test_every_cell_takes_the_steps_of_one_process(
    data: int, pipe: int, tensor: int, towns: Callable[[int], Town]
) -> None:
    """Shares are uneven (7 = 4 + 3), no number of micro-batches divides them, targets are left
    out: a sum or a division over the wrong workers shows."""
    town = towns(data * pipe * tensor)
    options: dict[str, Any] = {"replicas": data, "tensor": tensor}
    for kind, schedule, micro_batches in (("straight", "1f1b", 3), ("words", "gpipe", 2)):
        if kind == "words" and tensor > 1:
            options["layers"] = BY_NAME
        found, steps = trained(
            town, lambda kind=kind: mesh_task(kind), schedule, micro_batches=micro_batches,
            **options,
        )  # fmt: skip
        assert same(found, expected(lambda kind=kind: mesh_task(kind))), kind
        if kind == "straight":
            counts = [[count for _, count in each] for each in steps.values()]
            assert [sum(column) for column in zip(*counts, strict=True)] == [7, 4, 7]


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "zb1p", "zbv"])
@pytest.mark.parametrize("recompute", [False, True])
def test_every_schedule_is_one_process_in_two_by_two_by_two(
    name: str, recompute: bool, towns: Callable[[int], Town]
) -> None:
    found, _ = trained(
        towns(8), lambda: mesh_task("straight"), name, replicas=2, tensor=2, micro_batches=3,
        recompute=recompute,
    )  # fmt: skip
    assert same(found, expected(lambda: mesh_task("straight")))


def test_a_replica_without_a_sample_takes_part_with_nothing(towns: Callable[[int], Town]) -> None:
    def make() -> Task:
        return mesh_task("straight", 10)  # 10 samples, then 1

    found, _ = trained(towns(8), make, "1f1b", replicas=2, tensor=2, micro_batches=4)
    assert same(found, expected(make))


@pytest.mark.parametrize("cuts", [(1,), (2,), (6,)])
def test_a_pair_may_lie_on_two_stages(cuts: tuple[int, ...], towns: Callable[[int], Town]) -> None:
    """What crosses is then a slice, and goes to the worker with the same slice."""
    for name in ("gpipe", "zb1p"):
        found, _ = trained(
            towns(4), lambda: mesh_task("straight"), name, tensor=2, cuts=cuts, micro_batches=3
        )
        assert same(found, expected(lambda: mesh_task("straight"))), name


@pytest.mark.parametrize("how", ["row", "column"])
def test_a_table_of_words_may_be_cut(how: str, towns: Callable[[int], Town]) -> None:
    """By words, of which one is padding; or by columns, before a layer cut by rows."""

    def make() -> Task:
        torch.manual_seed(2)
        table = nn.Embedding(10, 6, padding_idx=7)
        model = nn.Sequential(table, nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)).double()
        dice = torch.Generator().manual_seed(1)
        words = torch.randint(0, 10, (11, 2), generator=dice)
        words[0, 0] = 7
        y = torch.randn(11, 2, 3, generator=dice, dtype=torch.float64)
        # What is made when the optimiser is: of whole tensors.
        optimizer = torch.optim.Adagrad(model.parameters(), 0.1)
        return Task(model, sum_loss(functional.mse_loss, reduction="sum"), optimizer,
                    Data((words, y), 7))  # fmt: skip

    layers = {"row": {"0": "row"}, "column": {"0": "column", "1": "row"}}[how]
    found, _ = trained(towns(4), make, "1f1b", tensor=2, layers=layers, cuts=(2,))
    assert same(found, expected(make))


class Between(nn.Module):
    """A number between two cuts: each slice sees a part of its gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Sum(nn.Module):
    """Looks at all elements of a sample: of a slice, at some."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1, keepdim=True).expand(-1, 8)


@pytest.mark.parametrize(
    ("inner", "layers", "said"),
    [
        (Between(), {"0": "column", "2": "row"}, "the gradient of 1.scale is not the same on"),
        (nn.Tanh(), {"3": "row"}, "shapes cannot be multiplied"),
        (Sum(), {"0": "column"}, "the loss is not the same on worker 0, worker 1"),
    ],
)
def test_what_looks_at_more_than_its_slice_is_found_at_the_first_step(
    inner: nn.Module, layers: dict[str, str], said: str, towns: Callable[[int], Town]
) -> None:
    def make() -> Task:
        task = mesh_task("straight")
        torch.manual_seed(0)
        own = copy.deepcopy(inner)  # a thread each: nothing of a model is shared
        model = nn.Sequential(nn.Linear(4, 8), own, nn.Linear(8, 6), nn.Linear(6, 5)).double()
        return Task(model, task.loss, torch.optim.SGD(model.parameters(), 0.1), task.data)

    with pytest.raises((InvalidInput, RuntimeError), match=said):
        trained(towns(2), make, "gpipe", tensor=2, layers=layers)


def test_workers_of_one_place_are_neighbours() -> None:
    mesh = Mesh(replicas=2, places=3, slices=2)
    assert [mesh.rank(mesh.spot(rank)) for rank in range(12)] == list(range(12))
    assert mesh.spot(9) == Spot(replica=1, place=1, slice=1)
    assert mesh.alike(mesh.spot(9)) == ["worker 8", "worker 9"]


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 5))
    model[2].weight = model[0].weight
    return model.double()


@pytest.mark.parametrize(
    ("workers", "options", "said"),
    [
        (6, {"tensor": 4}, "tensor: 4 does not divide the 6 workers of a replica"),
        (4, {"tensor": 2, "replicas": 4}, "tensor: 2 does not divide the 1 workers"),
        (3, {"tensor": 3}, "tensor: 0 is 8 wide where it is cut, which 3 does not divide"),
        (2, {"layers": {"0": "column"}}, "layers: nothing is cut"),
        (2, {"tensor": 2, "layers": {"3": "row"}}, "layers: 3 is a LayerNorm"),
        (4, {"tensor": 2, "cuts": (1, 2)}, "cuts: 1, one less than the 2 stages"),
    ],
)
def test_what_makes_no_mesh_is_said_in_words(
    workers: int, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        registry.choose("1f1b", options).check(mesh_task("straight"), workers, 0)


def test_tied_layers_are_cut_alike_or_not_at_all() -> None:
    task = mesh_task("straight")
    task.model = tied()
    strategy = registry.choose("gpipe", {"tensor": 2, "layers": {"0": "column", "2": "row"}})
    with pytest.raises(InvalidInput, match="2 is tied to a layer that is cut the other way"):
        strategy.check(task, 2, 0)
    strategy = registry.choose("gpipe", {"tensor": 2, "layers": {"0": "column", "3": "row"}})
    with pytest.raises(InvalidInput, match="2 is tied to a layer that is cut, and is not itself"):
        strategy.check(task, 2, 0)

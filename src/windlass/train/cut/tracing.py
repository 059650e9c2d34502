"""A model's own forward as a program of blocks, found by tracing it with torch.fx.

First without any numbers, which costs nothing. Where the forward asks for one (`if x.shape[1] >
8`, `len(x)`, `range(t)`), again with a small batch of the task's data, so that such questions have
answers; each answer is checked in every later forward. What depends on the *values* of a tensor
cannot be answered for other batches, and is refused, or, where there is a layer around it, left
whole as a block. A model whose own forward defeats all this goes through torch.export.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx, nn

from windlass.core.errors import InvalidInput
from windlass.train.cut.kerasmodels import is_keras, keras_program
from windlass.train.cut.probe import inputs_of
from windlass.train.cut.program import Calling, Program, program
from windlass.train.cut.questions import Refused, Tracer, tracing
from windlass.train.cut.whereabouts import said, where_it_failed
from windlass.train.task import Task

IsLeaf = Callable[[nn.Module, str], bool]


def traced(task: Task, batch: Any) -> Program:
    """Raises InvalidInput that says where and why the model cannot be cut."""
    args, kwargs = inputs_of(task, batch)
    if is_keras(task.model):
        return keras_program(task.model, args, kwargs)
    with _as_it_trains(task.model):
        if task.blocks is not None:
            return _by_blocks(task.model, task.blocks, args, kwargs)
        return _by_layers(task.model, args, kwargs)


def _by_blocks(model: nn.Module, blocks: Sequence[nn.Module], args: Any, kwargs: Any) -> Program:
    """The blocks stay whole, and so does every module that has none of them inside."""
    paths = _paths(model, blocks)
    through = {path.rpartition(".")[0] for path in paths} - {""}
    through |= {up for path in through for up in _above(path)}

    def is_leaf(module: nn.Module, path: str) -> bool:
        return path in paths or path not in through

    def begins(node: fx.Node) -> str | None:
        target = str(node.target)
        return target if node.op == "call_module" and target in paths else None

    try:
        found = _trace(model, is_leaf, args, kwargs)
    except Refused as refused:
        raise _uncuttable(
            model,
            refused,
            "task.blocks stay whole: put this line into one of them, or let it depend on shapes "
            "and settings alone",
        ) from refused
    made = program(model, found.graph, begins, **found.more)
    missing = [path for path in paths if path not in made.names]
    if missing:
        raise InvalidInput(
            f"task.blocks: {missing[0]!r} is not called by the model's forward"
            + (f" (nor are {len(missing) - 1} others)" if len(missing) > 1 else ""),
            hint="name the blocks that are called, in the order in which they are called",
        )
    return made


def _by_layers(model: nn.Module, args: Any, kwargs: Any) -> Program:
    """Down to torch's own layers; a module that cannot be traced stays whole."""
    whole: set[str] = set()

    def is_leaf(module: nn.Module, path: str) -> bool:
        ours = type(module).__module__.startswith("torch.nn")
        container = isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict)
        return path in whole or (ours and not container) or not _children(module)

    while True:
        try:
            found = _trace(model, is_leaf, args, kwargs)
        except Refused as refused:
            if refused.module and refused.module not in whole:
                whole.add(refused.module)
                continue
            from windlass.train.cut.exporting import exported

            return exported(model, args, kwargs, instead_of=_uncuttable(model, refused, _NEXT))
        made = program(model, found.graph, _layer_with_parameters(model), **found.more)
        if not made.names:
            raise InvalidInput(
                f"task.model: {type(model).__name__} has no layer with parameters to cut at",
                hint=_NEXT,
            )
        return made


_NEXT = (
    "give the layers in order as task.blocks, make the model an nn.Sequential, or put this line "
    "into a module of its own, which then stays whole"
)


class _Found:
    def __init__(self, graph: fx.Graph, **more: Any) -> None:
        self.graph = graph
        self.more = more


def _trace(model: nn.Module, is_leaf: IsLeaf, args: Any, kwargs: Any) -> _Found:
    """Without numbers, then with them. Raises Refused."""
    calling = Calling.like(args, kwargs)
    try:
        found = _traced_once(model, is_leaf, args, kwargs, numbers=False)
    except Refused:
        found = _traced_once(model, is_leaf, args, kwargs, numbers=True)
    return _Found(
        found.graph,
        calling=calling,
        constants=found.constants,
        training_only=_asks_whether_it_trains(model, is_leaf),
    )


def _traced_once(
    model: nn.Module, is_leaf: IsLeaf, args: Any, kwargs: Any, *, numbers: bool
) -> Tracer:
    tracer = Tracer(is_leaf, args, kwargs, numbers=numbers)
    with tracing(model, tracer):
        tracer.trace(model)
    return tracer


def _asks_whether_it_trains(model: nn.Module, is_leaf: IsLeaf) -> bool:
    """Whether a forward that was traced through names `training`: what it answered is in the
    program. Read from the code, so a word too many only forbids evaluating by stages."""
    for path, module in model.named_modules():
        if path and is_leaf(module, path):
            continue
        code = getattr(type(module).forward, "__code__", None)
        own = not type(module).__module__.startswith("torch.nn")
        if own and code is not None and "training" in code.co_names:
            return True
    return False


def _layer_with_parameters(model: nn.Module) -> Callable[[fx.Node], str | None]:
    def begins(node: fx.Node) -> str | None:
        if node.op != "call_module":
            return None
        path = str(node.target)
        has = next(model.get_submodule(path).parameters(), None) is not None
        return path if has else None

    return begins


def _paths(model: nn.Module, blocks: Sequence[nn.Module]) -> list[str]:
    known = {id(module): path for path, module in model.named_modules()}
    paths: list[str] = []
    for n, block in enumerate(blocks):
        path = known.get(id(block), "")
        if not path:
            raise InvalidInput(
                f"task.blocks: number {n} ({type(block).__name__}) is not inside the model",
                hint="blocks=model.layers, where model is the one that the task has",
            )
        paths.append(path)
    for path in paths:
        inside = next((each for each in paths if each.startswith(f"{path}.")), None)
        if inside:
            raise InvalidInput(f"task.blocks: {inside!r} is inside {path!r}: one of them only")
    if not paths:
        raise InvalidInput("task.blocks: at least one")
    return paths


def _above(path: str) -> Iterator[str]:
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _children(module: nn.Module) -> bool:
    return any(child is not None for child in module._modules.values())


def _uncuttable(model: nn.Module, refused: Refused, hint: str) -> InvalidInput:
    place = where_it_failed(refused.cause)
    inside = f" (module {refused.module!r})" if refused.module else ""
    return InvalidInput(
        f"task.model: {type(model).__name__} cannot be cut at {place}{inside}: "
        f"{said(refused.cause)}",
        hint=hint,
    )


@contextmanager
def _as_it_trains(model: nn.Module) -> Iterator[None]:
    """A stage trains: the forward is traced in that mode, and the modes are as before after."""
    modes = [(module, module.training) for module in model.modules()]
    kept = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    model.train()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for buffer, before in kept:
                buffer.copy_(before)

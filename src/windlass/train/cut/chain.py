"""A model as a chain of blocks in the order of execution, from which stages are made.

Three ways, none of which asks for another model:

    nn.Sequential       its modules are the blocks (those of a Sequential inside it too)
    task.blocks         those modules are the blocks; what the model's forward does before, between
                        and after them is found by tracing it, and belongs to the block before
    anything else       traced down to layers; every layer with parameters begins a block
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from windlass.core.errors import InvalidInput
from windlass.train.cut.packing import unpack
from windlass.train.cut.probe import casts_of, example_of
from windlass.train.cut.program import Program, program
from windlass.train.cut.stage import Stage
from windlass.train.data import to_device
from windlass.train.task import Task

_SAMPLES = 2
"""Of the example: with one sample a size of 1 would look like a batch."""


@dataclass(frozen=True)
class Block:
    name: str
    parameters: tuple[str, ...]
    """Names in the full model's state_dict, each tensor once."""


class Chain:
    """Of one model. Stages share its parameters; the chain itself keeps none of them alive once
    the model has let go of them (see `release`)."""

    blocks: tuple[Block, ...]
    edges: tuple[tuple[int, int], ...]
    """Block i's result is used by block j > i: (i, i+1) mostly, others are skips."""
    tied: Mapping[str, tuple[int, ...]]
    """Parameter → the blocks that use it, where there are several."""

    def __init__(self, found: Program, casts: Mapping[str, torch.dtype] | None = None) -> None:
        """`casts`: what the model works in under torch's autocast, for each kind of device."""
        self._program = found
        self._casts = dict(casts or {})
        self._aliases = _aliases(found)
        self._names = {path: same[0] for path, same in self._aliases.items()}
        users: dict[str, list[int]] = {name: [] for name in self._parameters()}
        for n in range(len(found.names)):
            for name in self._used(n):
                users[name].append(n)
        self._unused = tuple(name for name, used in users.items() if not used)
        for name in self._unused:  # nobody uses it, yet somebody keeps it for the checkpoint
            users[name].append(0)
        self.blocks = tuple(
            Block(name, tuple(each for each, used in users.items() if n in used))
            for n, name in enumerate(found.names)
        )
        self.tied = {name: tuple(used) for name, used in users.items() if len(used) > 1}
        self.edges = found.edges()

    def __len__(self) -> int:
        return len(self.blocks)

    def stage(self, first: int, last: int) -> Stage:
        """Blocks first … last, inclusive."""
        if not 0 <= first <= last < len(self.blocks):
            raise InvalidInput(
                f"stage: blocks from 0 to {len(self.blocks) - 1} (found {first} to {last})"
            )
        found = self._program
        holder = nn.Module()
        paths = found.targets(first, last)
        if first == 0:
            paths += [*self._unused, *self._unused_buffers()]
        for path in paths:
            _attach(found, holder, path)
        holder.training = found.root.training
        name_of = {
            id(each): self._names[path]
            for path, each in found.root.named_parameters(remove_duplicate=False)
        }
        return Stage(
            found.part(first, last),
            holder,
            first=first,
            last=last,
            blocks=len(self.blocks),
            name_of=name_of,
            aliases=self._aliases,
            training_only=found.training_only,
            casts=self._casts,
        )

    def enter(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """What the first stage takes, from what the model is called with."""
        return self._program.calling.flat(args, kwargs)

    def result(self, values: tuple[Any, ...]) -> Any:
        """What the model gives, from what the last stage gives."""
        (found,) = unpack(values)
        return found

    def made_by(self, block: int) -> tuple[int, ...]:
        """Of the values alive after a block, the places of those that this very block made: the
        others only pass through."""
        alive = self._program.alive_after(block)
        mine = self._program.block_of
        return tuple(
            n for n, node in enumerate(alive) if mine[node] == block and node.op != "placeholder"
        )

    def _parameters(self) -> list[str]:
        return [name for name, _ in self._program.root.named_parameters()]

    def _used(self, block: int) -> list[str]:
        found: list[str] = []
        root = self._program.root
        for path in self._program.targets(block, block):
            held = _reach(self._program, path)
            if isinstance(held, nn.Module):
                names = held.named_parameters(prefix=path)
                found += [self._names[name] for name, _ in names if name in self._names]
            elif path in self._names and _is_parameter(root, path):
                found.append(self._names[path])
        return list(dict.fromkeys(found))

    def _unused_buffers(self) -> list[str]:
        """Entries of the state_dict that no block's module has: kept with the first."""
        root = self._program.root
        used = self._program.targets(0, len(self.blocks) - 1)
        below = tuple(f"{path}." for path in used)
        return [
            name
            for name, _ in root.named_buffers()
            if name not in used and not name.startswith(below)
        ]


def chain_of(task: Task, example: Any = None) -> Chain:
    """The task's model as a chain. `example`: a batch to see how the loss calls the model (a
    small one is taken from the task's data otherwise). Raises InvalidInput that says where and
    why the model cannot be cut, and what would help."""
    _refuse_hooks(task.model)
    first = next(task.model.parameters(), None)
    devices = [first.device] if first is not None and first.device.type == "cuda" else []
    with torch.random.fork_rng(devices):  # a loss may throw dice before it calls the model
        batch = example if example is not None else example_of(task, _SAMPLES)
        if first is not None:
            batch = to_device(batch, first.device)
        casts = casts_of(task, batch)
        if task.blocks is None and is_sequential(task.model):
            return Chain(_sequential(task.model), casts)
        from windlass.train.cut.tracing import traced  # costs a second to import

        return Chain(traced(task, batch), casts)


def is_sequential(module: nn.Module) -> bool:
    return (
        isinstance(module, nn.Sequential)
        and type(module).forward is nn.Sequential.forward
        and "forward" not in vars(module)
        and not module._forward_hooks
        and not module._forward_pre_hooks
    )


def _refuse_hooks(model: nn.Module) -> None:
    """What is not in a forward is in no stage."""
    if model._forward_hooks or model._forward_pre_hooks:
        raise InvalidInput(
            f"task.model: {type(model).__name__} has forward hooks, which no stage would call",
            hint="hang them on one of its layers: those stay whole",
        )
    if hasattr(model, "_orig_mod"):
        raise InvalidInput(
            "task.model: it is compiled, and a pipeline needs it as it was before",
            hint="give the model itself, and compile=True to fit",
        )


def _sequential(model: nn.Module) -> Program:
    graph = fx.Graph()
    value = graph.placeholder("input")
    begins: dict[fx.Node, str] = {}
    for path in _layers(model, ""):
        value = graph.create_node("call_module", path, (value,))
        begins[value] = path
    graph.output(value)
    if not begins:
        raise InvalidInput("task.model: a Sequential without modules cannot be cut")
    return program(model, graph, begins.get)


def _layers(module: nn.Module, prefix: str) -> list[str]:
    found: list[str] = []
    for name, child in module._modules.items():
        assert child is not None
        path = f"{prefix}{name}"
        found += _layers(child, f"{path}.") if is_sequential(child) else [path]
    return found


def _reach(found: Program, path: str) -> Any:
    if path in found.constants:
        return found.constants[path]
    held: Any = found.root
    for part in path.split("."):
        held = getattr(held, part)
    return held


def _is_parameter(root: nn.Module, path: str) -> bool:
    *way, name = path.split(".")
    held = root
    for part in way:
        held = getattr(held, part)
    return name in held._parameters


def _attach(found: Program, holder: nn.Module, path: str) -> None:
    """The module or tensor under its path, in modules that are nothing but a path."""
    *way, name = path.split(".")
    source: Any = found.root
    for part in way:
        source = getattr(source, part)
        own = holder._modules.get(part)
        if own is source:
            return  # a module above it is here already
        if own is None:
            own = nn.Module()
            holder.add_module(part, own)
        holder = own
    held = _reach(found, path)
    if isinstance(held, nn.Module):
        holder._modules[name] = held
    elif isinstance(held, nn.Parameter):
        holder.register_parameter(name, held)
    elif isinstance(held, Tensor):
        known = isinstance(source, nn.Module) and name in source._buffers
        passing = not known or name in source._non_persistent_buffers_set
        if name not in holder._buffers:
            holder.register_buffer(name, held, persistent=not passing)
    else:
        object.__setattr__(holder, name, held)


def _aliases(program: Program) -> dict[str, tuple[str, ...]]:
    """Each name of a parameter or buffer → all names of the same tensor in the model, the first
    one first."""
    model = program.root
    by_tensor: dict[int, list[str]] = {}
    for name, each in (
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ):
        by_tensor.setdefault(id(each), []).append(name)
    found = {name: tuple(names) for names in by_tensor.values() for name in names}
    for path, held in program.constants.items():
        if isinstance(held, nn.Module):
            for name, parameter in held.named_parameters(prefix=path, remove_duplicate=False):
                found[name] = tuple(by_tensor[id(parameter)])
    return found

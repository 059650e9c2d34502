"""A model's forward as a list of operations, each in a block: what every way of cutting gives.

The operations are the nodes of a torch.fx graph in the order of execution. A block is a run of
them. What a parameter or a buffer is needed for is written beside each use, so that no parameter
crosses a boundary; every other value that is needed later does.

      inputs ─► block 0 ─► block 1 ─► block 2 ─► outputs
                   └── a skip: alive at both boundaries ──┘
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from windlass.core.errors import InvalidInput
from windlass.train.cut.packing import pack

Node = fx.Node


@dataclass(frozen=True)
class Calling:
    """How the model is called: which leaves of its arguments are the program's inputs. The others
    (None, numbers, words) were taken as they are, so that they may decide what the forward does;
    a call with others is refused."""

    shape: pytree.TreeSpec | None = None
    fixed: tuple[tuple[int, Any], ...] = ()
    """Place among the leaves → the value that was taken."""

    @staticmethod
    def like(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Calling:
        leaves, shape = pytree.tree_flatten((tuple(args), dict(kwargs)))
        found = [(n, each) for n, each in enumerate(leaves) if not isinstance(each, Tensor)]
        return Calling(shape, tuple(found))

    def flat(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        if self.shape is None:  # one input, of any shape
            given = [*args, *kwargs.values()]
            if len(given) != 1:
                raise InvalidInput(f"the model takes one input (the loss gave {len(given)})")
            return pack(given, "the model's input")
        leaves, shape = pytree.tree_flatten((tuple(args), dict(kwargs)))
        fixed = dict(self.fixed)
        if shape != self.shape:
            raise InvalidInput(
                "the loss calls the model with other arguments than when it was cut",
                hint="call it alike for every batch",
            )
        for n, value in fixed.items():
            if leaves[n] is not value and not bool(leaves[n] == value):
                raise InvalidInput(
                    f"the model was cut for an argument {value!r} (now it is {leaves[n]!r})",
                    hint="give what changes from batch to batch as a tensor",
                )
        return tuple(each for n, each in enumerate(leaves) if n not in fixed)


@dataclass(frozen=True)
class Program:
    root: nn.Module
    graph: fx.Graph
    names: tuple[str, ...]
    """Of the blocks."""
    block_of: Mapping[Node, int]
    calling: Calling = field(default_factory=Calling)
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Tensors that the forward made out of nothing while it was traced; layers that are not in the
    root's tree of modules."""
    training_only: bool = False
    """Whether the forward itself asks `self.training`: it was traced as it trains."""

    @cached_property
    def inputs(self) -> list[Node]:
        return [node for node in self.graph.nodes if node.op == "placeholder"]

    @cached_property
    def output(self) -> Any:
        (found,) = (node for node in self.graph.nodes if node.op == "output")
        return found

    @cached_property
    def _crossing(self) -> list[tuple[Node, int, int]]:
        """Values that are needed after their block: made in, needed until."""
        found = (
            (node, at, max((self.block_of[user] for user in node.users), default=at))
            for node, at in self.block_of.items()
            if node.op != "get_attr"
        )
        return [(node, at, until) for node, at, until in found if until > at]

    @cached_property
    def _of_block(self) -> list[list[Node]]:
        found: list[list[Node]] = [[] for _ in self.names]
        for node, at in self.block_of.items():
            if node.op not in ("placeholder", "output"):
                found[at].append(node)
        return found

    def alive_after(self, block: int) -> list[Node]:
        """What blocks up to this one have made, or were given, and later ones need."""
        return [node for node, at, until in self._crossing if at <= block < until]

    def edges(self) -> tuple[tuple[int, int], ...]:
        found = {
            (at, self.block_of[user])
            for node, at in self.block_of.items()
            if node.op not in ("get_attr", "placeholder")
            for user in node.users
            if self.block_of[user] > at
        }
        return tuple(sorted(found))

    def targets(self, first: int, last: int) -> list[str]:
        """Modules and attributes of the root that these blocks use, by path."""
        found = (
            str(node.target)
            for block in self._of_block[first : last + 1]
            for node in block
            if node.op in ("call_module", "get_attr")
        )
        return list(dict.fromkeys(found))

    def part(self, first: int, last: int) -> fx.Graph:
        """The blocks first … last as a graph of their own: from what is alive before them to what
        is alive after them (the model's output, as a tuple of one, at the end)."""
        graph = fx.Graph()
        entry = self.inputs if first == 0 else self.alive_after(first - 1)
        mine: dict[Node, Node] = {}
        for n, node in enumerate(entry):
            mine[node] = graph.placeholder(f"alive_{n}")
        for block in self._of_block[first : last + 1]:
            for node in block:
                mine[node] = graph.node_copy(node, lambda each: mine[each])
        if last == len(self.names) - 1:
            result = fx.map_arg(self.output.args[0], lambda each: mine[each])
            graph.output((result,))
        else:
            graph.output(tuple(mine[node] for node in self.alive_after(last)))
        return graph


def program(
    root: nn.Module,
    graph: fx.Graph,
    begins: Callable[[Node], str | None],
    **more: Any,
) -> Program:
    """A graph as blocks: each node for which `begins` gives a name begins one. What comes before
    the first belongs to the first, what comes between to the one before."""
    _beside_their_uses(graph)
    names: list[str] = []
    block_of: dict[Node, int] = {}
    for node in graph.nodes:
        name = begins(node)
        if name is not None:
            names.append(_new(name, names))
        block_of[node] = max(0, len(names) - 1)
    for node in graph.nodes:
        if node.op == "get_attr":  # it stands before the node that begins the block it is for
            block_of[node] = max(block_of[user] for user in node.users)
        node.meta.clear()  # what it was with the example is not kept alive
    return Program(root, graph, tuple(names), block_of, **more)


def compiled(graph: fx.Graph) -> Callable[..., tuple[Any, ...]]:
    """The graph as a function of (the module that holds its targets, its inputs…)."""
    code = graph.python_code("self")
    space: dict[str, Any] = dict(code.globals)
    exec(compile(code.src, "<a stage's forward>", "exec"), space)
    found: Callable[..., tuple[Any, ...]] = space["forward"]
    return found


class Reach:
    """Modules by their paths, without the search that torch makes at each `module.name`: a stage
    asks for each of them in every forward. Parameters and buffers are looked up anew."""

    def __init__(self, holder: nn.Module, modules: Set[str], prefix: str = "") -> None:
        self._holder = holder
        for name, child in holder._modules.items():
            path = f"{prefix}{name}"
            if path in modules or any(each.startswith(f"{path}.") for each in modules):
                assert child is not None
                whole = path in modules
                self.__dict__[name] = child if whole else Reach(child, modules, f"{path}.")

    def __getattr__(self, name: str) -> Any:
        if name == "_holder":  # while it is being copied
            raise AttributeError(name)
        return getattr(self._holder, name)


def put_together_as(shape: pytree.TreeSpec) -> Callable[..., Any]:
    """A function for a program's end: what the forward gave, from its leaves. (A user's own class
    of outputs is one, where it is registered with torch's pytree.)"""

    def put_together(*leaves: Any) -> Any:
        return pytree.tree_unflatten(list(leaves), shape)

    return put_together


def on_device(graph: fx.Graph, device: torch.device) -> bool:
    """Puts the device in the place of those that were written into the graph as they were traced;
    whether there were any."""
    changed = False
    for node in graph.nodes:
        for name, value in node.kwargs.items():
            if isinstance(value, torch.device) and value != device:
                node.update_kwarg(name, device)
                changed = True
    return changed


def _beside_their_uses(graph: fx.Graph) -> None:
    for node in list(graph.nodes):
        if node.op != "get_attr":
            continue
        for user in list(node.users):
            with graph.inserting_before(user):
                own = graph.create_node("get_attr", node.target)
                own.meta = dict(node.meta)
            user.replace_input_with(node, own)
        graph.erase_node(node)


def _new(name: str, names: Sequence[str]) -> str:
    """A block that is called again is another block."""
    count = sum(each == name or each.startswith(f"{name} (call ") for each in names)
    return name if count == 0 else f"{name} (call {count + 1})"

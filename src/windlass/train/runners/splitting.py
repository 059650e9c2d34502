"""Backward in two halves: first the gradient of a stage's inputs, later that of its parameters.

    loss ── D ── C ── B ── A ── input          on the way to the input: the first half
                 │    │    │
                 w3   w2   w1                  what branches off it: the second half

The first half takes note of the gradients that arrive where branches leave the way. The second
begins there, each branch by itself, so nothing is computed twice. `autograd.grad` twice over a
kept graph would give the same numbers, but goes the whole way again for the parameters: the first
half is paid for twice. torch has such a pair of functions for its own pipelines, but keeps it
private, and it changes from version to version.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

Gradients = tuple[Tensor | None, ...]
_Edges = Sequence[GradientEdge] | Sequence[Tensor]
_Seeds = Sequence[Tensor | None]


@dataclass(eq=False)
class _Branch:
    """Parameters, by their places, and the nodes of the way from which they are reached."""

    parameters: set[int] = field(default_factory=set)
    nodes: set[Node] = field(default_factory=set)


class Split:
    """One backward. `inputs` first, then `weights` or `add_up`, once each."""

    def __init__(
        self,
        outputs: Sequence[Tensor],
        gradients: Sequence[Tensor | None],
        inputs: Sequence[Tensor],
        parameters: Sequence[Tensor],
    ) -> None:
        """All of `outputs`, `inputs` and `parameters` take part in a graph of autograd."""
        self._outputs = list(outputs)
        self._gradients = list(gradients)
        self._inputs = list(inputs)
        self._parameters = list(parameters)
        self._edges = [get_gradient_edge(each) for each in parameters]
        self._arrived: dict[Node, tuple[Tensor | None, ...]] = {}
        self._branches: list[_Branch] = []
        self._aside: list[tuple[Tensor, Tensor | None]] = []
        self._survey()

    def inputs(self) -> Gradients:
        """The graph behind the outputs is let go of, but for the branches."""
        handles = [
            node.register_prehook(self._note(node))
            for branch in self._branches
            for node in branch.nodes
        ]
        found: Gradients = (None,) * len(self._inputs)
        try:
            if self._inputs and self._outputs:
                found = torch.autograd.grad(
                    self._outputs, self._inputs, self._gradients,
                    retain_graph=True, allow_unused=True,
                )  # fmt: skip
        finally:
            for handle in handles:
                handle.remove()
        self._outputs, self._gradients, self._inputs = [], [], []
        return found

    def weights(self) -> Gradients:
        found: list[Tensor | None] = [None] * len(self._edges)

        def give(starts: _Edges, seeds: _Seeds, places: Sequence[int], more: bool) -> None:
            gradients = torch.autograd.grad(
                starts, [self._edges[at] for at in places], seeds,
                allow_unused=True, retain_graph=more,
            )  # fmt: skip
            for place, gradient in zip(places, gradients, strict=True):
                before = found[place]
                if gradient is not None:
                    found[place] = gradient if before is None else before + gradient

        self._go(give)
        return tuple(found)

    def add_up(self) -> None:
        """The same to the parameters' own `.grad`: added while it is at hand, a layer at a time,
        and no two layers' gradients are there at once."""

        def add(starts: _Edges, seeds: _Seeds, places: Sequence[int], more: bool) -> None:
            torch.autograd.backward(
                starts, seeds, inputs=[self._parameters[at] for at in places], retain_graph=more
            )

        self._go(add)

    def _go(self, what: Callable[[_Edges, _Seeds, Sequence[int], bool], None]) -> None:
        """From where each branch begins to its parameters."""
        more = bool(self._aside)
        for branch in self._branches:
            with self._beginning(branch) as (starts, seeds):
                if starts:
                    what(starts, seeds, sorted(branch.parameters), more)
        if self._aside and self._edges:
            outputs, gradients = zip(*self._aside, strict=True)
            what(outputs, gradients, range(len(self._edges)), False)
        self._branches, self._arrived, self._aside = [], {}, []

    @contextmanager
    def _beginning(self, branch: _Branch) -> Iterator[tuple[list[GradientEdge], list[Tensor]]]:
        starts: list[GradientEdge] = []
        seeds: list[Tensor] = []
        for node in branch.nodes:
            for place, gradient in enumerate(self._arrived.get(node, ())):
                if gradient is not None:
                    starts.append(GradientEdge(node, place))
                    seeds.append(gradient)
        handles = []
        if len(branch.nodes) > 1:
            # One may lie behind another: what flows between them has been counted already.
            handles = [
                node.register_prehook(_instead(self._arrived[node]))
                for node in branch.nodes
                if node in self._arrived
            ]
        try:
            yield starts, seeds
        finally:
            for handle in handles:
                handle.remove()

    def _note(self, node: Node) -> Callable[..., None]:
        def hook(gradients: tuple[Tensor | None, ...]) -> None:
            self._arrived[node] = gradients

        return hook

    # -- the graph --------------------------------------------------------------------------

    def _survey(self) -> None:
        """Which nodes lie on the way to an input, and where parameters branch off."""
        behind = _consumers([get_gradient_edge(each).node for each in self._outputs])
        way = _reach({get_gradient_edge(each).node for each in self._inputs}, behind, set())[0]
        for output, gradient in zip(self._outputs, self._gradients, strict=True):
            if get_gradient_edge(output).node not in way:
                self._aside.append((output, gradient))
        by_node: dict[Node, _Branch] = {}
        for place, edge in enumerate(self._edges):
            nodes = _reach({edge.node}, behind, way)[1]
            branch = _Branch({place}, set(nodes))
            for other in {id(by_node[n]): by_node[n] for n in nodes if n in by_node}.values():
                branch.parameters |= other.parameters
                branch.nodes |= other.nodes
            for node in branch.nodes:
                by_node[node] = branch
        self._branches = list({id(each): each for each in by_node.values()}.values())


def _instead(gradients: tuple[Tensor | None, ...]) -> Callable[..., Any]:
    return lambda _: gradients


def _consumers(roots: list[Node]) -> dict[Node, list[Node]]:
    """Of each node that can be reached: the nodes whose inputs it made."""
    found: dict[Node, list[Node]] = defaultdict(list)
    seen, left = set(roots), list(roots)
    while left:
        node = left.pop()
        for further, _ in node.next_functions:
            if further is not None:
                found[further].append(node)
                if further not in seen:
                    seen.add(further)
                    left.append(further)
    return found


def _reach(
    begin: set[Node], behind: dict[Node, list[Node]], stops: set[Node]
) -> tuple[set[Node], set[Node]]:
    """The nodes that make use of these, directly or not, up to `stops`; the stops met."""
    found, met, left = set(begin), set[Node](), list(begin)
    while left:
        for node in behind.get(left.pop(), ()):
            if node in stops:
                met.add(node)
            elif node not in found:
                found.add(node)
                left.append(node)
    return found, met

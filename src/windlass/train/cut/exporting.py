"""The last way to cut a model: torch.export, which runs the forward and writes down what it did.

It sees through Python that torch.fx does not (`isinstance(x, Tensor)`, libraries), at a price: the
layers are gone, only their operations are left. So a block is what one layer did; the forward is
fixed as it trains; and BatchNorm, whose statistics could then no longer be deferred, is refused.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr
from typing import Any, TextIO, cast

from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from windlass.core.errors import InvalidInput
from windlass.train.cut.program import Calling, Program, program, put_together_as
from windlass.train.cut.whereabouts import said

_BatchNorm = nn.modules.batchnorm._BatchNorm


def exported(
    model: nn.Module, args: Any, kwargs: dict[str, Any], *, instead_of: InvalidInput
) -> Program:
    """Raises `instead_of`, which says what was wrong before, where this fails too."""
    if any(isinstance(each, _BatchNorm) for each in model.modules()):
        raise instead_of
    try:
        found = _export(model, args, kwargs)
        inner: fx.GraphModule = found.module()
        graph = inner.graph
        _drop_checks(graph, found, Calling.like(args, kwargs))
        constants = _constants(model, inner)
        made = program(
            model, graph, _layers(model), calling=Calling.like(args, kwargs),
            constants=constants, training_only=True,
        )  # fmt: skip
    except Exception as error:
        message = f"{instead_of.message}; torch.export cannot either: {said(error)}"
        raise InvalidInput(message, hint=instead_of.hint) from error
    if not made.names:
        raise instead_of
    return made


def same_shape(found: Tensor, when_cut: list[int | None]) -> None:
    """Stands in the program for each input: sizes that torch.export took as given."""
    if len(when_cut) != found.dim() or any(
        size is not None and size != here for size, here in zip(when_cut, found.shape, strict=True)
    ):
        raise InvalidInput(
            f"the model was cut for an input of shape {tuple(when_cut)} (None: any), and found "
            f"{tuple(found.shape)}",
            hint="give its layers as task.blocks: sizes are then free",
        )


def _export(model: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
    from torch.export import Dim, export

    batch = next(each.shape[0] for each in pytree.tree_leaves(args) if isinstance(each, Tensor))

    def sizes(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return None
        return {
            n: Dim.DYNAMIC if n == 0 and size == batch else Dim.AUTO
            for n, size in enumerate(leaf.shape)
        }

    dynamic = (*(pytree.tree_map(sizes, args)), *(pytree.tree_map(sizes, kwargs).values()))
    with warnings.catch_warnings(), redirect_stderr(cast(TextIO, _Others(sys.stderr))):
        warnings.simplefilter("ignore")
        return export(model, args, kwargs, dynamic_shapes=dynamic, strict=False)


class _Others:
    """A stream without what this thread writes: where torch.export fails it prints all that it had
    written down so far, twice. What it says is in our own message."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._own = threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self._own else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _drop_checks(graph: fx.Graph, found: Any, calling: Calling) -> None:
    """torch's own guards give way to ours; inputs that are no tensors go; the output gets its
    shape back."""
    for node in list(graph.nodes):
        if node.op == "call_module" and node.target == "_guards_fn":
            graph.erase_node(node)
    fixed = {n for n, _ in calling.fixed}
    for n, node in enumerate([each for each in graph.nodes if each.op == "placeholder"]):
        if n in fixed:
            graph.erase_node(node)
            continue
        shape = [_known(size) for size in node.meta["val"].shape]
        last = [each for each in graph.nodes if each.op == "placeholder"][-1]
        with graph.inserting_after(last):
            graph.call_function(same_shape, (node, shape))
    (output,) = (each for each in graph.nodes if each.op == "output")
    put_together = put_together_as(found.call_spec.out_spec)
    with graph.inserting_before(output):
        whole = graph.call_function(put_together, tuple(output.args[0]))
    output.args = (whole,)


def _known(size: Any) -> int | None:
    found: int | None = size if isinstance(size, int) else size.node.maybe_as_int()
    return found


def _constants(model: nn.Module, inner: fx.GraphModule) -> dict[str, Tensor]:
    """What the graph reads that is not the model's: tensors made in the forward."""
    found: dict[str, Tensor] = {}
    known = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    known |= {name for name, _ in model.named_buffers(remove_duplicate=False)}
    for node in inner.graph.nodes:
        if node.op == "call_module" or (node.op == "get_attr" and node.target not in known):
            held: Any = inner
            for part in str(node.target).split("."):
                held = getattr(held, part)
            if not isinstance(held, Tensor):
                raise ValueError("it has parts of its own (no_grad, autocast, cond)")
            found[str(node.target)] = held
    return found


def _layers(model: nn.Module) -> Callable[[fx.Node], str | None]:
    """What a layer with parameters did is a block, with what follows until the next."""
    current = ""

    def begins(node: fx.Node) -> str | None:
        nonlocal current
        stack = node.meta.get("nn_module_stack")
        if node.op != "call_function" or not stack:
            return None
        path = str(list(stack.values())[-1][0])
        if not path or path == current:
            return None
        try:
            held = model.get_submodule(path)
        except AttributeError:
            return None
        if not any(each is not None for each in held._parameters.values()):
            return None
        current = path
        return path

    return begins

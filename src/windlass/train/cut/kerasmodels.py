"""Keras 3 models on the torch backend: cut along the graph of layers that Keras itself keeps.

A Sequential or functional model knows its layers and what each takes, so nothing is traced. A
model that is a class of its own does not; Keras's calls defeat torch's tracers, so it is refused.
Layers keep their variables outside torch's tree of modules; they are the same tensors, and go by
the names that the whole model gives them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from windlass.core.errors import InvalidInput
from windlass.train.cut.program import Calling, Program, program

_INSTEAD = (
    "make it a keras.Sequential or a functional model (keras.Model(inputs, outputs)), or train it "
    "with a strategy that keeps the model whole (allreduce, ps …)"
)


def is_keras(model: nn.Module) -> bool:
    return any(kind.__module__.partition(".")[0] == "keras" for kind in type(model).__mro__)


def modules_of(model: nn.Module) -> Iterator[nn.Module]:
    """Those of torch's tree, and of Keras's."""
    yield from model.modules()
    if is_keras(model):
        for layer in _layers_below(model):
            yield from layer.modules()


def hold_instead(model: nn.Module, instead: Mapping[int, nn.Parameter]) -> None:
    """Keras's variables hold a tensor each, beside torch's modules: the new in the place of the
    old, by the id of the old."""
    for variable in getattr(model, "variables", ()) if is_keras(model) else ():
        if id(variable._value) in instead:
            variable._value = instead[id(variable._value)]


def keras_program(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program:
    """Raises InvalidInput for a model that has no graph of layers, or that hands on masks."""
    inner = getattr(model, "_functional", None) or model
    if not hasattr(inner, "_nodes_by_depth"):
        raise InvalidInput(
            f"task.model: {type(model).__name__} is a Keras model of its own class, and what its "
            "call does cannot be seen from outside: it cannot be cut",
            hint=_INSTEAD,
        )
    _refuse_masks(inner)
    graph = fx.Graph()
    tensors = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    if len(tensors) != len(inner.inputs):
        raise InvalidInput(
            f"task.loss: it gives the model {len(tensors)} tensors (it takes {len(inner.inputs)})"
        )
    value_of = {id(each): graph.placeholder(f"input_{n}") for n, each in enumerate(inner.inputs)}
    held: dict[str, Any] = {}
    begins: dict[fx.Node, str] = {}
    for node in _in_order(inner):
        operation = node.operation
        taken = _filled(node.arguments.args, value_of)
        named = _filled(node.arguments.kwargs, value_of)
        if "training" in kwargs and getattr(operation, "_call_has_training_arg", False):
            named["training"] = kwargs["training"]
        if isinstance(operation, nn.Module):
            path = str(operation.name).replace(".", "_")
            held[path] = operation
            made = graph.create_node("call_module", path, taken, named)
            if next(operation.parameters(), None) is not None:
                begins[made] = path
        else:
            made = graph.call_function(_called(operation), taken, named)
        for n, each in enumerate(node.outputs):
            several = len(node.outputs) > 1
            value_of[id(each)] = (
                graph.call_function(operator.getitem, (made, n)) if several else made
            )
    given = _filled(inner._outputs_struct, value_of)
    graph.output(given[0] if isinstance(given, list | tuple) and len(given) == 1 else given)
    if not begins:
        raise InvalidInput("task.model: no layer has parameters to cut at", hint=_INSTEAD)
    return program(model, graph, begins.get, calling=Calling.like(args, kwargs), constants=held)


def _in_order(inner: Any) -> Iterator[Any]:
    for depth in sorted(inner._nodes_by_depth, reverse=True):
        for node in inner._nodes_by_depth[depth]:
            if node.operation and not node.is_input:
                yield node


def _filled(what: Any, value_of: Mapping[int, fx.Node]) -> Any:
    """Keras's tensors replaced by ours."""
    if id(what) in value_of:
        return value_of[id(what)]
    if isinstance(what, tuple | list):
        return type(what)(_filled(each, value_of) for each in what)
    if isinstance(what, dict):
        return {name: _filled(each, value_of) for name, each in what.items()}
    return what


def _called(operation: Any) -> Any:
    def keras_operation(*args: Any, **kwargs: Any) -> Any:
        return operation(*args, **kwargs)

    return keras_operation


def _refuse_masks(inner: Any) -> None:
    for layer in _layers_below(inner):
        if getattr(layer, "mask_zero", False) or type(layer).__name__ == "Masking":
            raise InvalidInput(
                f"task.model: the layer {layer.name!r} hands on a mask beside its output, which "
                "does not cross from stage to stage",
                hint="give the mask as an input of its own, or keep the model whole",
            )


def _layers_below(model: Any) -> list[Any]:
    return list(model._flatten_layers(include_self=False))

"""Which layers are cut over workers: one by columns, then one by rows, and a sum behind both.

    x ─ A by columns ─ f ─ B by rows ─ sum over the workers ─ …       Y = sum_i f(X A_i) B_i

Between the two stands only what works by elements: each worker has other elements there.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Literal

from torch import nn

from windlass.core.errors import InvalidInput

How = Literal["column", "row", "apart"]
Layers = dict[str, How]
_BY_ELEMENT = (
    nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.LeakyReLU, nn.ELU, nn.Softplus, nn.ReLU6,
    nn.Hardtanh, nn.Mish, nn.Identity, nn.Dropout,
)  # fmt: skip


def chosen(model: nn.Module, asked: Layers | None) -> Layers:
    """The layers to cut. Raises InvalidInput where a name finds nothing, where it is no linear
    layer, or where nothing can be cut."""
    if asked is None:
        found = dict(pairs(model))
        if not found:
            raise InvalidInput(
                "layers: no pair of linear layers was found in a Sequential or a transformer "
                "layer",
                hint='name them: layers={"*.up": "column", "*.down": "row"}',
            )
        return found
    found = {}
    for pattern, how in asked.items():
        names = [name for name, _ in model.named_modules() if fnmatchcase(name, pattern)]
        if not names:
            raise InvalidInput(
                f"layers: no module is called {pattern!r}",
                hint="names are those of model.named_modules(), * and ? stand for any",
            )
        for name in names:
            module = model.get_submodule(name)
            if how != "apart" and not isinstance(module, (nn.Linear, nn.Embedding)):
                raise InvalidInput(
                    f"layers: {name} is a {type(module).__name__}; by column or row a Linear or "
                    "an Embedding can be cut"
                )
            found[name] = how
    return found


def cut_along(module: nn.Module, how: How) -> int:
    """The dimension of its weight: a Linear's is (out, in), an Embedding's (words, out)."""
    if isinstance(module, nn.Linear):
        return 0 if how == "column" else 1
    return 1 if how == "column" else 0


def cut_of(module: nn.Linear | nn.Embedding, how: How) -> list[tuple[nn.Parameter, int]]:
    """Its parameters that are cut, and along which dimension."""
    found = {"weight": cut_along(module, how)}
    if how == "column" and isinstance(module, nn.Linear):
        found["bias"] = 0
    held = module._parameters
    return [(each, dim) for name, dim in found.items() if (each := held.get(name)) is not None]


def divides(model: nn.Module, layers: Layers, size: int, option: str) -> None:
    """Raises InvalidInput, about this option, where a linear layer makes no `size` equal parts."""
    for name, how in layers.items():
        module = model.get_submodule(name)
        if how == "apart" or not isinstance(module, nn.Linear):
            continue
        width = int(module.weight.shape[cut_along(module, how)])
        if width % size:
            raise InvalidInput(
                f"{option}: {name} is {width} wide where it is cut, which {size} does not divide",
                hint=f"another {option}=, or layers= without it",
            )


def check_layers(model: nn.Module, layers: Layers, size: int) -> None:
    """Raises InvalidInput where these layers make no `size` slices."""
    divides(model, layers, size, "tensor")
    cut: dict[int, int] = {}
    for name, how in layers.items():
        module = model.get_submodule(name)
        if how == "apart" or not isinstance(module, (nn.Linear, nn.Embedding)):
            continue
        usual = type(module).forward in (nn.Linear.forward, nn.Embedding.forward)
        if not usual or "forward" in vars(module):
            raise InvalidInput(f"layers: {name} has a forward of its own, which cannot be cut")
        if not isinstance(module._parameters.get("weight"), nn.Parameter):
            raise InvalidInput(f"layers: the weight of {name} is made of others, and not cut")
        if isinstance(module, nn.Embedding):
            _plain_table(name, module, how, size)
        for parameter, dim in cut_of(module, how):
            if cut.setdefault(id(parameter), dim) != dim:
                raise InvalidInput(f"layers: {name} is tied to a layer that is cut the other way")
    for name, module in model.named_modules():
        if layers.get(name) in ("column", "row"):
            continue
        if any(id(each) in cut for each in module._parameters.values()):
            raise InvalidInput(
                f"layers: {name or 'the model'} is tied to a layer that is cut, and is not itself",
                hint="cut both or none: an Embedding by row is cut as a Linear by column",
            )


def _plain_table(name: str, module: nn.Embedding, how: How, size: int) -> None:
    width = int(module.weight.shape[cut_along(module, how)])
    if width % size:
        raise InvalidInput(
            f"tensor: {name} is {width} wide where it is cut, which {size} does not divide",
            hint="another tensor=, or layers= without it",
        )
    if module.max_norm is not None or module.scale_grad_by_freq or module.sparse:
        raise InvalidInput(
            f"layers: {name} looks at whole rows (max_norm, scale_grad_by_freq) or is sparse",
            hint="layers= without it",
        )


def pairs(model: nn.Module) -> Iterator[tuple[str, How]]:
    """Two linear layers with nothing but what works by elements between them."""
    for name, module in model.named_modules():
        inside = f"{name}." if name else ""
        if isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
            yield f"{inside}linear1", "column"
            yield f"{inside}dropout", "apart"
            yield f"{inside}linear2", "row"
        elif isinstance(module, nn.Sequential):
            yield from _in_sequence(module, inside)


def _in_sequence(module: nn.Sequential, inside: str) -> Iterator[tuple[str, How]]:
    first: tuple[str, nn.Linear] | None = None
    between: list[str] = []
    for name, each in module.named_children():
        if isinstance(each, nn.Linear):
            if first is not None and first[1].out_features == each.in_features:
                yield inside + first[0], "column"
                yield from ((inside + one, "apart") for one in between)
                yield inside + name, "row"
                first = None
            else:
                first = (name, each)
            between = []
        elif first is not None and isinstance(each, _BY_ELEMENT):
            if isinstance(each, nn.Dropout):
                between.append(name)
        else:
            first, between = None, []

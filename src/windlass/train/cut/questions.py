"""The tracer, and what it answers when a forward asks for a number."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.proxy import Attribute, Proxy, TraceError
from torch.utils import _pytree as pytree

from windlass.core.errors import InvalidInput
from windlass.train.cut.program import put_together_as

_LOCK = threading.RLock()
"""torch.fx changes nn.Module itself while it traces: one at a time."""

_FACTORIES = (
    "arange", "empty", "eye", "full", "linspace", "ones", "rand", "randint", "randn", "tensor",
    "zeros",
)  # fmt: skip
"""They take sizes and no tensor, so that torch does not see a traced value among them."""

_ABOUT_SHAPE = frozenset(
    {
        "size", "dim", "shape", "ndim", "numel", "stride", "dtype", "device", "is_floating_point",
        "is_complex", "is_cuda", "element_size", "ndimension", "nelement", "layout", "is_sparse",
        "requires_grad", "len",
    }
)  # fmt: skip


class Refused(Exception):
    """The trace ended: in which module (its path, "" in the model's own forward), and why."""

    def __init__(self, module: str, cause: Exception) -> None:
        super().__init__(str(cause))
        self.module = module
        self.cause = cause


def same_way(found: Any, when_cut: Any, where: str) -> None:
    """Stands in the program wherever a question was answered while it was traced."""
    if found != when_cut:
        raise InvalidInput(
            f"the model was cut for {where} = {when_cut!r} (found {found!r} with this batch)",
            hint="its forward depends on a size that changes: put that part into one block",
        )


class Tracer(fx.Tracer):
    """Tensors among the arguments are inputs; all else of them stays as it is. With `numbers` the
    forward runs on the example meanwhile, and what it asks about sizes is answered."""

    trace_asserts = True
    proxy_buffer_attributes = True

    def __init__(
        self, is_leaf: Callable[[nn.Module, str], bool], args: Any, kwargs: Any, *, numbers: bool
    ) -> None:
        super().__init__()
        self.numbers = numbers
        self.constants: dict[str, Tensor] = {}
        self._is_leaf = is_leaf
        self._given = (args, kwargs)
        self._thread = threading.get_ident()
        self._inside: list[str] = []
        self._computing = False
        self._mode = _mode()
        self.failed_in: str | None = None

    # -- what torch.fx asks of a tracer -----------------------------------------------------

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return self._is_leaf(m, module_qualified_name)

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if self._is_elsewhere():
            return forward(*args, **kwargs)
        try:
            path = self.path_of_module(m)
        except NameError:  # made within the forward: it has no parameters of the model
            return forward(*args, **kwargs)
        if self._is_leaf(m, path):
            return self.create_proxy("call_module", path, args, kwargs)
        self._inside.append(path)
        try:
            return forward(*args, **kwargs)
        except Exception:
            if self.failed_in is None:
                self.failed_in = path
            raise
        finally:
            self._inside.pop()

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        if self._is_elsewhere():
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def create_args_for_root(
        self, root_fn: Any, is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        leaves, shape = pytree.tree_flatten(self._given)
        taken = []
        for n, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                self._arriving = leaf
                taken.append(self.create_proxy("placeholder", f"input_{n}", (), {}))
            else:
                taken.append(leaf)
        args, kwargs = pytree.tree_unflatten(taken, shape)

        def call(root: nn.Module) -> Any:
            own = vars(root).get("forward")  # set on this very object
            found = own(*args, **kwargs) if own else root_fn(root, *args, **kwargs)
            parts, form = pytree.tree_flatten(found)
            if form.is_leaf():
                return found
            function = put_together_as(form)
            return self.create_proxy("call_function", function, tuple(parts), {})

        return call, [self.root]

    def create_proxy(self, kind: str, *rest: Any, **more: Any) -> Proxy:
        if _mode() != self._mode:
            raise TraceError("it runs under no_grad or autocast, which a trace does not see")
        proxy = super().create_proxy(kind, *rest, **more)
        if self.numbers:
            self._compute(proxy.node)
        return proxy

    def proxy(self, node: fx.Node) -> Proxy:
        return _Answering(node, self) if self.numbers else super().proxy(node)

    def to_bool(self, obj: Proxy) -> bool:
        return bool(self.answer(obj, bool, "a condition"))

    def iter(self, obj: Proxy) -> Iterator[Any]:
        if not self.numbers:
            return super().iter(obj)
        return iter([obj[n] for n in range(len(obj))])  # type: ignore[index]

    # -- numbers ----------------------------------------------------------------------------

    def answer(self, obj: Proxy, kind: Callable[[Any], Any], what: str) -> Any:
        """What a value is with the example; the program then checks that it stays so."""
        node = obj.node
        if "value" not in node.meta:
            raise TraceError(
                "symbolically traced variables cannot be used as inputs to control flow"
            )
        value = node.meta["value"]
        if kind is not len and (isinstance(value, Tensor) or node.meta["of_data"]):
            raise TraceError("what happens next depends on the values of a tensor")
        found = kind(value)
        asked = self.create_proxy("call_function", kind, (obj,), {})
        self.create_proxy("call_function", same_way, (asked, found, f"{what} ({node.name})"), {})
        return found

    def _compute(self, node: fx.Node) -> None:
        def value_of(each: fx.Node) -> Any:
            if "value" not in each.meta:  # a constant, which torch.fx adds by itself
                each.meta.update(value=self._value(each, (), {}), of_data=False)
            return each.meta["value"]

        self._computing = True
        try:
            with torch.no_grad():
                args = fx.map_arg(node.args, value_of)
                kwargs = fx.map_arg(node.kwargs, value_of)
                node.meta["value"] = self._value(node, args, kwargs)
        finally:
            self._computing = False
        name = getattr(node.target, "__name__", node.target)
        if name == "getattr":
            name = node.args[1]
        from_data = any(
            each.meta["of_data"]
            or (isinstance(each.meta["value"], Tensor) and name not in _ABOUT_SHAPE)
            for each in node.all_input_nodes
        )
        node.meta["of_data"] = from_data and not isinstance(node.meta["value"], Tensor)

    def _value(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        target: Any = node.target
        if node.op == "placeholder":
            return self._arriving.clone()
        if node.op == "call_function":
            return target(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], target)(*args[1:], **kwargs)
        held: Any = self.root
        for part in target.split("."):
            held = getattr(held, part)
        return held(*args, **kwargs) if node.op == "call_module" else held

    def _is_elsewhere(self) -> bool:
        """Another thread's module, or one that computes an answer: not part of the trace."""
        return self._computing or threading.get_ident() != self._thread


class _Answers:
    """What plain Python asks of a value, and torch.fx refuses."""

    tracer: Any

    def __len__(self) -> int:
        return int(self.tracer.answer(self, len, "a length"))

    def __index__(self) -> int:
        return int(self.tracer.answer(self, int, "a size"))

    def __int__(self) -> int:
        return int(self.tracer.answer(self, int, "a size"))

    def __float__(self) -> float:
        return float(self.tracer.answer(self, float, "a number"))


class _Answering(_Answers, Proxy):
    def __getattr__(self, k: str) -> Attribute:
        return _AnsweringAttribute(self, k)


class _AnsweringAttribute(_Answers, Attribute):
    def __getattr__(self, k: str) -> Attribute:
        return _AnsweringAttribute(self, k)


@contextmanager
def tracing(model: nn.Module, tracer: Tracer) -> Iterator[None]:
    """Around `tracer.trace(model)`: constants that torch.fx hangs on the model are taken off it,
    and every failure is a Refused."""
    before = set(vars(model))
    with _LOCK, _factories():
        try:
            yield
        except InvalidInput:
            raise
        except Exception as error:
            raise Refused(tracer.failed_in or "", error) from error
        finally:
            for name in set(vars(model)) - before:
                found = vars(model).pop(name)
                if isinstance(found, Tensor):
                    tracer.constants[name] = found


@contextmanager
def _factories() -> Iterator[None]:
    """`torch.arange(t)` and its like are recorded when a size among their arguments is traced."""
    usual = {name: getattr(torch, name) for name in _FACTORIES}
    for name, function in usual.items():
        setattr(torch, name, _recorded(function))
    try:
        yield
    finally:
        for name, function in usual.items():
            setattr(torch, name, function)


def _mode() -> tuple[bool, ...]:
    casts = (torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda"))
    return (torch.is_grad_enabled(), *casts)


def _recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    def factory(*args: Any, **kwargs: Any) -> Any:
        found = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, Proxy)]
        if not found:
            return function(*args, **kwargs)
        return found[0].tracer.create_proxy("call_function", function, args, kwargs)

    return factory

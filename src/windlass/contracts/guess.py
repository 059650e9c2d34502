"""Which framework a script uses, from what it imports, without running it; and why we think so.

The command comes first: torchrun is torchrun. Then the imports, those that surely run before those
that may not; the first level that names a framework decides:

    1  at the top of the script
    2  at the top of the modules beside it that the script imports
    3  inside functions and `try:`, where an import may be for one case only

Some imports settle others: Horovod trains a torch or TensorFlow model, Keras 3 runs on torch.
When two are left that would start their ranks differently, a gang is not started on a guess
(`Unsure`); one process alone is, for it needs nothing to find its peers.
"""

from __future__ import annotations

import ast
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from windlass.contracts import paddle, pytorch

_COMMANDS = {
    "torchrun": "pytorch",
    "deepspeed": "pytorch",
    "accelerate": "pytorch",
    "horovodrun": "horovod",
    "mpirun": "mpi",
    "mpiexec": "mpi",
    "orterun": "mpi",
    "spark-submit": "spark",
    "fleetrun": "paddle",
    "caffe": "caffe",
}
_IMPORTS = {
    "torch": "pytorch",
    "pytorch_lightning": "pytorch",
    "lightning": "pytorch",
    "accelerate": "pytorch",
    "deepspeed": "pytorch",
    "transformers": "pytorch",
    "tensorflow": "tensorflow",
    "tf_keras": "tensorflow",
    "keras": "keras",
    "horovod": "horovod",
    "mpi4py": "mpi",
    "chainermn": "mpi",
    "mxnet": "mxnet",
    "xgboost": "xgboost",
    "lightgbm": "lightgbm",
    "jax": "jax",
    "flax": "jax",
    "paddle": "paddle",
    "pyspark": "spark",
    "caffe": "caffe",
    "chainer": "chainer",
    "cntk": "cntk",
    "theano": "theano",
    "sklearn": "sklearn",
    "joblib": "sklearn",
}
_SETTLES = {
    "horovod": ("pytorch", "tensorflow", "tensorflow1", "keras", "mxnet"),
    "tensorflow": ("keras",),
    "tensorflow1": ("keras",),
    "keras": ("pytorch", "jax"),
    "mpi": ("chainer",),
}
"""Who starts the ranks when both are imported."""

_TENSORFLOW_1 = frozenset(
    "placeholder Session InteractiveSession get_variable global_variables_initializer app".split()
)
_PLAIN = "sklearn"
"""Every other framework's scripts use it for their data: it counts only alone."""

Beside = Callable[[str, int], Optional[str]]
"""The text of a module beside the script, by its name and the dots before it; None: not there."""


class Guess(NamedTuple):
    framework: str
    why: str


class Unsure(ValueError):
    """Several frameworks would do, and they would start the gang differently."""

    def __init__(self, why: str, frameworks: Sequence[str]) -> None:
        super().__init__(why)
        self.frameworks = tuple(frameworks)


def guess(
    command: Sequence[str],
    source: Optional[str] = None,
    processes: int = 1,
    beside: Optional[Beside] = None,
) -> Guess:
    """The framework of a command; `source` is the text of the script it runs, where known, and
    `processes` how many the gang starts. Raises Unsure."""
    launcher = _launcher(command)
    if launcher is not None:
        return launcher
    if source is None:
        return Guess("python", "a plain command")
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as err:
        return Guess("python", "the script cannot be parsed: %s" % err)
    found = _frameworks(tree, beside)
    if not found:
        return Guess("python", "the script imports no framework that is known here")
    left = _settled(found)
    first = left[0]
    if len(left) == 1:
        return Guess(first, found[first])
    reasons = "; ".join(found[framework] for framework in left)
    if processes > 1:
        raise Unsure("it is not clear how to start this gang: %s" % reasons, left)
    return Guess(first, "%s; a single process starts alike in all of them" % reasons)


def script_of(command: Sequence[str]) -> Optional[str]:
    """The Python file that a command runs: its first word that is no option and ends in `.py`."""
    for word in command:
        if word.endswith(".py"):
            return word
    return None


def _launcher(command: Sequence[str]) -> Optional[Guess]:
    name = command[0].rsplit("/", 1)[-1] if command else ""
    if name in _COMMANDS:
        return Guess(_COMMANDS[name], "the command is %s" % name)
    for kind, known in (("pytorch", pytorch.is_launcher), ("paddle", paddle.is_launcher)):
        if known(command):
            return Guess(kind, "the command is %s's launcher" % kind)
    return None


def _settled(found: Dict[str, str]) -> List[str]:
    """The frameworks that no other one of them answers for."""
    answered = {each for framework in found for each in _SETTLES.get(framework, ())}
    left = [framework for framework in found if framework not in answered]
    return [each for each in left if each != _PLAIN] or left


def _frameworks(tree: ast.Module, beside: Optional[Beside]) -> Dict[str, str]:
    """By framework the reason, from the first level that names any."""
    sure = list(_imports(tree.body))
    levels: List[Callable[[], Iterable[Tuple[str, str]]]] = [
        lambda: _named(tree, sure, "the script imports %s"),
        lambda: _through_neighbours(sure, beside),
        lambda: _named(tree, _everywhere(tree), "the script imports %s in one of its parts"),
    ]
    plain: Dict[str, str] = {}
    for level in levels:
        found: Dict[str, str] = {}
        for framework, why in level():
            found.setdefault(framework, why)
        if set(found) - {_PLAIN}:
            return found
        plain = plain or found
    return plain


class _Import(NamedTuple):
    module: str
    dots: int
    names: Tuple[str, ...]


def _named(tree: ast.Module, imports: Iterable[_Import], words: str) -> Iterator[Tuple[str, str]]:
    for each in imports:
        top = each.module.split(".", 1)[0]
        if _is_our_training(each):
            yield "pytorch", words % "windlass.train"
        if each.dots or top not in _IMPORTS:
            continue
        framework = _IMPORTS[top]
        if top == "tensorflow" and not each.module.startswith("tensorflow.compat"):
            old = _first_tensorflow_1_name(tree)
            if old:
                yield "tensorflow1", words % top + " and uses tf.%s of TensorFlow 1" % old
                continue
        yield framework, words % top


def _is_our_training(each: _Import) -> bool:
    """`import windlass.train`, `from windlass import train`, `from windlass.train import fit`."""
    top, _, rest = each.module.partition(".")
    return top == "windlass" and not each.dots and "train" in (rest.split(".")[0], *each.names)


def _through_neighbours(
    imports: Sequence[_Import], beside: Optional[Beside]
) -> Iterator[Tuple[str, str]]:
    if beside is None:
        return
    for each in imports:
        below = ["%s.%s" % (each.module, name) if each.module else name for name in each.names]
        for module in [each.module, *below]:
            text = beside(module, each.dots) if module else None
            if text is None:
                continue
            try:
                tree = ast.parse(text)
            except (SyntaxError, ValueError):
                continue
            words = "the script imports %s, which imports %%s" % module
            yield from _named(tree, _imports(tree.body), words)


def _imports(body: Iterable[ast.stmt]) -> Iterator[_Import]:
    """What surely runs: the statements of a module, also below a plain `if` or `with`."""
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from _of(node)
        elif isinstance(node, ast.If) and not _for_types_only(node.test):
            yield from _imports([*node.body, *node.orelse])
        elif isinstance(node, ast.With):
            yield from _imports(node.body)


def _everywhere(tree: ast.Module) -> Iterator[_Import]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from _of(node)


def _of(node: ast.stmt) -> Iterator[_Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield _Import(alias.name, 0, ())
    elif isinstance(node, ast.ImportFrom):
        yield _Import(node.module or "", node.level, tuple(alias.name for alias in node.names))


def _for_types_only(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return bool(name == "TYPE_CHECKING")


def _first_tensorflow_1_name(tree: ast.Module) -> str:
    """`Session` for a script that says `import tensorflow as tf` and later `tf.Session`."""
    known_as = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "tensorflow"
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in known_as
            and node.attr in _TENSORFLOW_1
        ):
            return node.attr
    return ""

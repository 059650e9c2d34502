"""The arrows of import. A package may import what stands in its row, and nothing else of ours."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "windlass"

MAY_IMPORT = {
    "core": set(),
    "scheduler": {"core"},
    "engines": {"core"},
    "tune": {"core"},
    "automl": set(),
    "contracts": set(),
    "job": set(),
    "patterns": set(),
    "worker": {"patterns"},
    "train": {"job", "core"},
    "client": {"core", "contracts"},
    "server": {"scheduler", "engines", "contracts", "tune", "patterns", "core"},
    "cli": {
        "client", "core", "contracts", "server", "job", "scheduler", "engines", "train", "tune",
        "automl", "patterns",
    },
    "testing": {"client", "core", "contracts", "server", "engines", "scheduler", "job", "worker"},
}  # fmt: skip
OLD_PYTHON = ("worker", "patterns", "contracts", "job")
"""They run in the user's interpreter: standard library only, syntax of Python 3.8. (`_sha2` is
there since 3.12; `debugpy` is imported in the user's process when a debugger is asked for.)"""


def modules(package: str) -> list[Path]:
    return sorted((SOURCE / package).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """(module, at the top) of each absolute import."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in top
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if _is_module(inner) else node.module or "", id(node) in top


def _is_module(name: str) -> bool:
    path = SOURCE.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def test_every_package_is_in_the_table() -> None:
    packages = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert packages == set(MAY_IMPORT)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_go_along_the_arrows(package: str) -> None:
    wrong = []
    for path in modules(package):
        for module, _ in imports(path):
            parts = module.split(".")
            if parts[0] != "windlass" or len(parts) < 2 or parts[1] == package:
                continue
            if parts[1] not in MAY_IMPORT[package] and parts[1] in MAY_IMPORT:
                wrong.append(f"{path.relative_to(SOURCE)} imports {module}")
    assert wrong == []


@pytest.mark.parametrize("package", OLD_PYTHON)
def test_what_runs_beside_user_code_needs_only_an_old_python(package: str) -> None:
    import sys

    for path in modules(package):
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
        for module, _ in imports(path):
            name = module.split(".")[0]
            known = {"windlass", *sys.stdlib_module_names, "_sha2", "debugpy"}
            assert name in known, f"{path}: {module}"


def test_core_needs_pydantic_and_nothing_else() -> None:
    import sys

    allowed = {"windlass", "pydantic", "pydantic_core", *sys.stdlib_module_names}
    for path in modules("core"):
        for module, _ in imports(path):
            assert module.split(".")[0] in allowed, f"{path}: {module}"


def test_there_is_no_knot_of_modules() -> None:
    """Imports at the top of modules form no cycle."""
    graph: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        name = name.removesuffix(".__init__")
        graph[name] = {
            module for module, top in imports(path) if top and module.startswith("windlass.")
        }
    done: set[str] = set()

    def walk(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " → ".join((*trail, name))
        if name in done or name not in graph:
            return
        for target in sorted(graph[name]):
            walk(target, (*trail, name))
        done.add(name)

    for name in sorted(graph):
        walk(name, ())


def test_only_tests_import_testing() -> None:
    for package in MAY_IMPORT:
        if package == "testing":
            continue
        for path in modules(package):
            for module, _ in imports(path):
                assert not module.startswith("windlass.testing"), path

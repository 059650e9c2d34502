"""What others rely on, pinned: a change of it is a decision, made in tests/golden/.

After a change that is meant: `python tests/test_surface.py` writes the files anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).parents[1]
GOLDEN = Path(__file__).parent / "golden"
sys.path.insert(0, str(ROOT))  # `docs` is part of the checkout, not of the package


def python_names() -> list[str]:
    """Public names of the package, of its client, of its training library and of the errors."""
    import windlass
    from windlass import client, train
    from windlass.core import errors

    names = [f"windlass.{name}" for name in windlass.__all__]
    names += [f"windlass.client.{name}" for name in client.__all__]
    names += [f"windlass.train.{name}" for name in train.__all__]
    kinds = (
        client.Client, client.Jobs, client.Nodes, client.Job, client.Queue, client.Queues,
        client.Quota, client.Quotas, client.Usage, client.Project, client.Projects, client.User,
        client.Users, client.Keys, client.Tokens,
    )  # fmt: skip
    for owner in kinds:
        kind = f"windlass.client.{owner.__name__}"
        names += [f"{kind}.{name}" for name in vars(owner) if not name.startswith("_")]
    names += [f"windlass.core.errors.{kind.__name__} {kind.code}" for kind in errors.every()]
    return sorted(names)


def commands() -> list[str]:
    """Every command with its flags and arguments."""
    from docs.writers.cli import commands as found

    lines = []
    for words, command in found():
        flags = [
            "/".join([*option.opts, *option.secondary_opts])
            for option in command.params
            if isinstance(option, click.Option)
        ]
        arguments = [
            str(each.name).upper() for each in command.params if isinstance(each, click.Argument)
        ]
        lines.append(" ".join([words, *arguments, *sorted(flags)]))
    return sorted(lines)


def routes() -> list[str]:
    """Every way into the server, its permission mark, its query and its name for clients."""
    from docs.writers.api import PAGES, application
    from docs.writers.api import routes as found

    document = application().openapi()
    lines = []
    for method, path, mark in found():
        if path.startswith("/mlflow/") or path == PAGES:  # not in the document
            lines.append(f"{method} {path} [{mark}]")
            continue
        operation = document["paths"][path.replace(":path}", "}")][method.lower()]
        given = [each["name"] for each in operation.get("parameters", ()) if each["in"] != "path"]
        lines.append(" ".join([method, path, f"[{mark}]", operation["operationId"], *given]))
    return sorted(lines)


PINNED: dict[str, Callable[[], list[str]]] = {
    "python.txt": python_names,
    "commands.txt": commands,
    "routes.txt": routes,
}


@pytest.mark.parametrize("name", PINNED)
def test_the_surface_is_as_pinned(name):
    pinned = (GOLDEN / name).read_text(encoding="utf-8").splitlines()
    found = PINNED[name]()
    assert sorted(set(pinned) - set(found)) == [], "gone: this breaks those who use it"
    assert sorted(set(found) - set(pinned)) == [], "new: run `python tests/test_surface.py`"


def test_the_package_offers_nothing_beside_its_public_names():
    import windlass

    assert dir(windlass) == sorted(windlass.__all__)
    with pytest.raises(AttributeError):
        windlass.surely_not_there  # noqa: B018


if __name__ == "__main__":
    for file, lines in PINNED.items():
        (GOLDEN / file).write_text("\n".join(lines()) + "\n", encoding="utf-8")

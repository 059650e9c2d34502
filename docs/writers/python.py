"""docs/reference/python.md: the Python client, from its classes, signatures and docstrings."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

from docs.writers.markdown import code, table
from windlass import client

HEAD = """# The Python client

```python
import windlass

client = windlass.Client()                      # the server and key that the command line uses
job = client.jobs.submit(run="python train.py", workers=2, code=".")
print(client.jobs.wait(job.id).state)
```

Plain calls, typed (`py.typed`), for one thread at a time. What went wrong is raised as a class of
[`windlass.core.errors`](errors.md). [How to use it](../how-to/python-client.md) has examples.
"""


def classes() -> Iterator[tuple[str, type]]:
    for name in client.__all__:
        yield name, getattr(client, name)


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties, as they were written down."""
    for name, found in vars(kind).items():
        if not name.startswith("_"):
            inner = found.fget if isinstance(found, property) else found
            inner = inner.__func__ if isinstance(inner, classmethod | staticmethod) else inner
            if inspect.isfunction(inner):
                yield name, found


def page() -> str:
    return "\n".join([HEAD, *(_section(name, kind) for name, kind in classes())])


def _section(name: str, kind: type) -> str:
    lines = [f"## {name}\n", about(kind), ""]
    if kind is client.Client:
        lines.append(table(("attribute", "what it is"), list(_attributes())))
    if dataclasses.is_dataclass(kind):
        fields = [(code(each.name), code(str(each.type))) for each in dataclasses.fields(kind)]
        lines.append(table(("field", "type"), fields))
    for member, found in members(kind):
        lines += [f"### {name}.{member}\n", f"```python\n{signature(member, found)}\n```\n"]
        lines += [_words(found), ""]
    return "\n".join(lines)


def about(kind: type) -> str:
    """What a class says of itself, or its module of it; a dataclass's own words are no words."""
    own = inspect.cleandoc(kind.__doc__ or "")
    if own and not own.startswith(f"{kind.__name__}("):
        return own
    return inspect.cleandoc(inspect.getdoc(inspect.getmodule(kind)) or "")


def _attributes() -> Iterator[tuple[str, str]]:
    """The nouns of a client: `client.jobs` and the others."""
    made = client.Client("http://127.0.0.1:7400", access_key="AK", secret_key="SK")
    for name, value in sorted(vars(made).items()):
        if not name.startswith("_") and type(value).__module__.startswith("windlass.client"):
            first = about(type(value)).partition("\n\n")[0]
            yield (
                code(f"client.{name}"),
                f"{code(type(value).__name__)}: {' '.join(first.split())}",
            )


def signature(name: str, found: Any) -> str:
    """As one would call it: without `self`, types in the words of the source."""
    if isinstance(found, property):
        return f"{name}: {inspect.get_annotations(found.fget).get('return', 'Any')}"
    inner = found.__func__ if isinstance(found, classmethod | staticmethod) else found
    told = inspect.signature(inner)
    kept = [each for each in told.parameters.values() if each.name not in ("self", "cls")]
    words = [_parameter(each) for each in kept]
    for at, each in enumerate(kept):
        if each.kind is each.KEYWORD_ONLY and not any(
            before.kind in (before.VAR_POSITIONAL, before.KEYWORD_ONLY) for before in kept[:at]
        ):
            words.insert(at, "*")
            break
    result = told.return_annotation
    after = "" if result is told.empty else f" -> {result}"
    line = f"{name}({', '.join(words)}){after}"
    if len(line) <= 96:
        return line
    return f"{name}(\n    " + ",\n    ".join(words) + f",\n){after}"


def _parameter(each: inspect.Parameter) -> str:
    star = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
    kind = "" if each.annotation is each.empty else f": {each.annotation}"
    default = "" if each.default is each.empty else f" = {each.default!r}"
    return f"{star}{each.name}{kind}{default}"


def _words(found: Any) -> str:
    return inspect.cleandoc(found.__doc__ or "")

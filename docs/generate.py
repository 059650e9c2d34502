"""Write the pages that are drawn from the code: `python -m docs.generate` (`make docs`).

With `--check` nothing is written; the exit code is 1 when a page is not as the code would have it.
A page is a module of `docs/writers/` with a function `page() -> str`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from docs.writers import (
    answers,
    api,
    cli,
    environment,
    errors,
    events,
    exits,
    frameworks,
    jobfile,
    plugins,
    python,
    settings,
    states,
    strategies,
)

FOLDER = Path(__file__).parent
NOTICE = "<!-- Drawn from the code by `make docs`: change the code, not this page. -->\n\n"

PAGES: dict[str, Callable[[], str]] = {
    "reference/cli.md": cli.page,
    "reference/job-file.md": jobfile.page,
    "reference/api.md": api.page,
    "reference/errors.md": errors.page,
    "reference/events.md": events.page,
    "reference/environment.md": environment.page,
    "reference/exit-codes.md": exits.page,
    "reference/frameworks.md": frameworks.page,
    "reference/settings.md": settings.page,
    "reference/strategies.md": strategies.page,
    "reference/plug-ins.md": plugins.page,
    "reference/json.md": answers.page,
    "reference/python.md": python.page,
    "internals/states.md": states.page,
}


def content(name: str) -> str:
    """A page as the code would have it now."""
    return NOTICE + PAGES[name]().rstrip() + "\n"


def stale() -> list[str]:
    """The pages that are not as the code would have them."""
    return [name for name in PAGES if _read(FOLDER / name) != content(name)]


def main(words: list[str]) -> int:
    old = stale()
    if "--check" in words:
        for name in old:
            print(f"docs/{name} is not current: run `make docs`", file=sys.stderr)
        return 1 if old else 0
    for name in old:
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content(name), encoding="utf-8")
        print(f"wrote docs/{name}")
    return 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

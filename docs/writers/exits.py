"""docs/reference/exit-codes.md."""

from __future__ import annotations

from docs.writers.markdown import table
from windlass.cli import exits


def page() -> str:
    rows = [(str(number), words) for number, words in exits.MEANING.items()]
    return (
        "# Exit codes\n\n"
        "`windlass run`, `windlass wait` and `windlass logs -f` return the job's own exit code "
        "when there is one (128 + n when signal n killed it). Otherwise, and for all other "
        "commands:\n\n" + table(("code", "meaning"), rows)
    )

"""The first job: is the table fit to be learnt from, and what is installed where jobs run."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from windlass.automl import families, table

ASKED = "automl.json"
"""What was asked: data, target, task, folds, holdout, seed, metric."""
FOUND = "found.json"


def look(asked: dict[str, Any]) -> dict[str, Any]:
    """Raises table.Unfit."""
    try:
        import sklearn  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        raise table.Unfit(
            f"scikit-learn is not installed where jobs run ({sys.executable}): pip install "
            "scikit-learn there"
        ) from None
    rows, problem = table.judge(table.read(Path(asked["data"])), asked["target"], asked["task"])
    found, notes = families.available(len(rows.rows))
    return {
        "rows": len(rows.rows), "problem": asdict(problem), "families": found,
        "notes": [*problem.notes, *notes],
    }  # fmt: skip


def main() -> None:
    folder = Path(os.environ["WINDLASS_OUTPUT_DIR"])
    try:
        found = look(json.loads(Path(ASKED).read_text(encoding="utf-8")))
    except table.Unfit as err:
        found = {"unfit": str(err)}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FOUND).write_text(json.dumps(found), encoding="utf-8")
    print(json.dumps(found)[:2000])


if __name__ == "__main__":
    main()

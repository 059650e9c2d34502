"""These modules as files that travel: with the jobs that run them, and with the models they make.

There they are the package `windlass_automl`, whatever Windlass is installed, or none.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = "windlass_automl"
MODULES = ("families", "look", "net", "predict", "table", "trial")
PREDICT = f'''"""python predict.py rows.csv  (windlass automl made this model)"""

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

from {PACKAGE}.predict import load, main  # noqa: E402, F401

if __name__ == "__main__":
    main(FOLDER)
'''


def files() -> dict[str, bytes]:
    """By path."""
    here = Path(__file__).parent
    found = {f"{PACKAGE}/__init__.py": b""}
    for name in MODULES:
        text = (here / f"{name}.py").read_text(encoding="utf-8")
        found[f"{PACKAGE}/{name}.py"] = text.replace("windlass.automl", PACKAGE).encode()
    return found


def model_files() -> dict[str, bytes]:
    """What a model needs beside its members to predict."""
    return {**files(), "predict.py": PREDICT.encode()}

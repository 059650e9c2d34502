"""Another release of Windlass: a copy of this one under its own version, with steps of its own for
the database.

    later = Release(tmp_path / "later", "99.0", {"0002": "def upgrade(): …"})
    platform.env |= later.env()          # from here on it starts that release
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import windlass

_VERSIONS = "windlass/server/store/migrations/versions"
_STEP = '''"""{number}."""

revision = "{number}"
down_revision = "{before}"
branch_labels = None
depends_on = None

'''


class Release:
    def __init__(self, folder: Path, version: str, steps: Mapping[str, str]) -> None:
        """`steps`: what each new migration does, by its number."""
        self._folder = folder
        source = Path(windlass.__file__).parent
        shutil.copytree(source, folder / "windlass", ignore=shutil.ignore_patterns("testing"))
        face = folder / "windlass" / "__init__.py"
        words = face.read_text()
        face.write_text(re.sub(r'(?m)^__version__ = ".*"$', f'__version__ = "{version}"', words))
        versions = folder / _VERSIONS
        before = max(path.name.partition("_")[0] for path in versions.glob("0*.py"))
        for number, step in sorted(steps.items()):
            head = _STEP.format(number=number, before=before)
            (versions / f"{number}_step.py").write_text(head + step)
            before = number

    def env(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self._folder)}

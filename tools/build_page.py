"""Builds the dashboard into a wheel or an sdist, where `make web` has not done so before.

Called by the build (`pyproject.toml`). An editable install is left alone: it serves what `make
web` builds, and says so where there is nothing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuildPage(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if version == "editable" or (root / "src/windlass/_ui/index.html").exists():
            return
        npm = shutil.which("npm")
        if npm is None:
            raise RuntimeError(
                "the dashboard is not built and there is no npm here: run `make web` first"
            )
        for words in (["install", "--no-save", "--no-audit", "--no-fund"], ["run", "build"]):
            subprocess.run([npm, "--prefix", str(root / "web"), *words], check=True)

"""Every hole that a test shows to be closed is opened again here, and the test must see it.

Each file of `holes/` is a patch that re-opens one hole; its first line names the test that then
turns red. A patch that does not apply any more is a failure too: write it anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
HOLES = sorted((HERE / "holes").glob("*.patch"))
SAMPLE = ("S3-cookie-alone", "S22-split-over-two-writes")
"""Quick ones, opened in every run of the tests; all of them in the long one."""


def named_by(patch: Path) -> str:
    first = patch.read_text(encoding="utf-8").splitlines()[0]
    found = re.fullmatch(r"# test: (tests/\S+\.py::\S.*)", first)
    assert found, f"{patch.name}: its first line is `# test: tests/…::test_…`"
    return found[1]


def opened(patch: Path, folder: Path) -> Path:
    """A copy of the source with the hole in it."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    applied = subprocess.run(
        ["patch", "-p1", "--no-backup-if-mismatch", "-i", str(patch)],
        cwd=folder, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert applied.returncode == 0, f"{patch.name} does not apply: {applied.stdout}"
    return folder / "src"


def run(source: Path, test: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The one test, in a Python that has this source before the installed one."""
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    return subprocess.run(
        [*words, f"--basetemp={folder / 'run'}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )


def sees(patch: Path, folder: Path) -> None:
    source = opened(patch, folder)
    seen = run(source, named_by(patch), folder)
    told = seen.stdout[-3000:] + seen.stderr[-1000:]
    assert seen.returncode == 1, f"{patch.name} is not seen by its test: {told}"
    assert re.search(r"\b[1-9][0-9]* failed\b", seen.stdout), f"an error, not a failure: {told}"


def test_each_hole_applies_and_names_a_test(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    wrong = []
    for patch in HOLES:
        file, _, name = named_by(patch).partition("::")
        function = name.partition("[")[0].rpartition("::")[2]
        if f"def {function}(" not in (ROOT / file).read_text(encoding="utf-8"):
            wrong.append(f"{patch.name}: no test {function} in {file}")
        words = ["patch", "-p1", "--dry-run", "--force", "-i", str(patch)]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            wrong.append(f"{patch.name} does not apply: {done.stdout.strip()}")
    assert not wrong, "\n".join(wrong)


def test_every_hole_of_the_design_that_we_could_have_is_here() -> None:
    """S9 and S11 come with the part that they are about: serving."""
    have = {patch.stem.partition("-")[0] for patch in HOLES}
    wanted = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22)
    missing = {f"S{number}" for number in wanted}
    assert not missing - have, sorted(missing - have)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_a_hole_is_seen_by_its_test(name: str, tmp_path: Path) -> None:
    sees(HERE / "holes" / f"{name}.patch", tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("patch", HOLES, ids=[patch.stem for patch in HOLES])
def test_every_hole_is_seen_by_its_test(patch: Path, tmp_path: Path) -> None:
    sees(patch, tmp_path)

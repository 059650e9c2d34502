"""What a first minute with Windlass may weigh: counts and bytes, never times.

Times are measured by `benchmarks/` and read by people; these numbers are the same on every
machine, so a change that breaks one is stopped here.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from windlass.testing.platform import Platform, wait_for

ROOT = Path(__file__).resolve().parent.parent
MB = 1_000_000
HEAVY = {"httpx", "pydantic", "rich", "fastapi", "sqlalchemy", "yaml", "psutil", "asyncio"}


def test_the_base_install_has_at_most_50_packages_and_200_megabytes() -> None:
    installed = closure("windlass")
    size = sum(size_of(found) for name, found in installed.items() if name != "windlass")
    size += sum(path.stat().st_size for path in (ROOT / "src").rglob("*.py"))
    assert len(installed) <= 50, sorted(installed)
    assert size <= 200 * MB, {name: size_of(found) // 1000 for name, found in installed.items()}


@pytest.mark.browser  # it holds the page, which must be built
def test_the_wheel_has_at_most_4_megabytes(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps"]
    done = subprocess.run(
        [*pip, "-w", str(tmp_path), str(ROOT)], capture_output=True, text=True, timeout=300
    )
    if done.returncode != 0 and "No matching distribution found for hatchling" in done.stderr:
        pytest.skip("the build's own tools cannot be installed here")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size <= 4 * MB
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    assert "windlass/_ui/index.html" in names, "it holds the page"
    assert any(name.startswith("windlass/_ui/assets/") and name.endswith(".br") for name in names)
    assert not any("node_modules" in name for name in names)


def test_help_imports_nothing_of_weight() -> None:
    code = (
        "import sys\nfrom windlass.cli.main import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Daily" in done.stdout
    assert not {name for name in HEAVY if f"'{name}'" in done.stderr}, done.stderr


def test_an_idle_server_and_a_worker_stay_small(tmp_path: Path) -> None:
    with Platform(tmp_path / "home") as platform:
        job = platform.submit(["sleep", "600"])
        platform.wait_state(job, "running")
        place = platform.attempts(job)[-1]
        worker = wait_for(lambda: platform.worker_pid(place), 10, "its worker lives")
        assert peak_bytes(worker) <= 30 * MB
        platform.client.jobs.stop(job.id, now=True)
        platform.wait(job)
        assert platform.process is not None
        assert peak_bytes(platform.process.pid) <= 150 * MB


def closure(name: str) -> dict[str, Distribution]:
    """A distribution and all that it requires, without extras, as installed here."""
    found: dict[str, Distribution] = {}
    waiting: list[tuple[str, frozenset[str]]] = [(name, frozenset())]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        entry = waiting.pop()
        if entry in seen:
            continue
        seen.add(entry)
        wanted, extras = entry
        try:
            found[canonicalize_name(wanted)] = distribution(wanted)
        except PackageNotFoundError:
            pytest.fail(f"{wanted} is required and not installed: pip install -e .")
        for text in found[canonicalize_name(wanted)].requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": each}) for each in {"", *extras}):
                continue
            waiting.append((requirement.name, frozenset(requirement.extras)))
    return found


def size_of(found: Distribution) -> int:
    paths = [Path(str(file.locate())) for file in found.files or ()]
    return sum(path.stat().st_size for path in paths if path.is_file())


def peak_bytes(pid: int) -> int:
    """The most memory a process ever had."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        pytest.skip("this system does not tell it")
    (line,) = [each for each in status.read_text().splitlines() if each.startswith("VmHWM")]
    return int(line.split()[1]) * 1024

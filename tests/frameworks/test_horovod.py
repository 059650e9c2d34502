"""Horovod for real. Its last release must be patched and built, which takes eight minutes or so;
the protocol of its ranks is tested without it in tests/worker/test_worker_services.py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from windlass.testing.environments import Unavailable, cache, environment
from windlass.testing.platform import Platform

EXAMPLE = Path(__file__).parents[2] / "examples" / "horovod"
RELEASE = "horovod==0.28.1"
BUILD_SECONDS = 3000
NEEDED = (
    "torch==2.13.0", "numpy", "packaging", "cloudpickle", "psutil", "pyyaml",
    "setuptools<81", "wheel", "cmake<4",
)  # fmt: skip
GLOO_ONLY = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
}


def built() -> Path:
    """The Python of an environment that holds Horovod over torch and Gloo. Raises Unavailable."""
    if shutil.which("g++") is None:
        raise Unavailable("Horovod must be built, and there is no C++ compiler")
    python = environment("horovod", *NEEDED)
    if run(python, "-c", "import horovod.torch").returncode == 0:
        return python
    sources = cache() / "horovod-source"
    shutil.rmtree(sources, ignore_errors=True)
    sources.mkdir()
    pip = ("-m", "pip", "--disable-pip-version-check", "--quiet")
    must(run(python, *pip, "download", "--no-deps", "--no-binary", ":all:", RELEASE, cwd=sources))
    with tarfile.open(next(sources.glob("horovod-*.tar.gz"))) as archive:
        archive.extractall(sources, filter="data")
    folder = next(path for path in sources.iterdir() if path.is_dir())
    use_newer_standard(folder)
    # Not more at once: each compiler holds torch's headers, about a gigabyte.
    variables = {**GLOO_ONLY, "MAKEFLAGS": f"-j{min(2, os.cpu_count() or 1)}"}
    print("horovod: building, some eight minutes on two cores", flush=True)
    must(
        run(
            python,
            *pip,
            "install",
            "--no-build-isolation",
            "--no-deps",
            ".",
            cwd=folder,
            **variables,
        )
    )
    shutil.rmtree(sources)
    return python


def use_newer_standard(folder: Path) -> None:
    """torch's headers refuse C++14, which the release asks for in two places."""
    for name in ("CMakeLists.txt", "horovod/torch/CMakeLists.txt"):
        path = folder / name
        text = path.read_text()
        assert "set(CMAKE_CXX_STANDARD 14)" in text, name
        path.write_text(text.replace("set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 17)"))


def run(
    python: Path, *words: str, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    # Its build looks for `cmake` on PATH.
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(python), *words],
        cwd=cwd,
        env={**os.environ, **variables, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
    )


def must(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        raise Unavailable(f"{' '.join(done.args)}: {(done.stdout + done.stderr)[-2000:]}")


@pytest.mark.slow
@pytest.mark.timeout(BUILD_SECONDS + 600)
def test_one_command_trains_two_ranks_on_two_nodes(tmp_path: Path) -> None:
    try:
        python = built()
    except Unavailable as why:
        pytest.skip(str(why))
    active = {"VIRTUAL_ENV": str(python.parents[1])}
    with Platform(
        tmp_path / "home", "--fake-nodes", "2", "--fake-gpus", "1", env=active
    ) as platform:
        flags = ("--framework", "horovod", "--workers", "2", "--gpus", "1")
        done = platform.cli("run", *flags, "train.py", cwd=EXAMPLE)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(2):
        assert len(re.findall(f"rank {rank} of 2 is here", done.stdout)) == 1
    losses = [float(found) for found in re.findall(r"loss=([0-9.]+)", done.stdout)]
    assert len(losses) == 10 and losses[-1] < losses[0] / 100

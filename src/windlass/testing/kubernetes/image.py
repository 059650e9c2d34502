"""Container images without a registry: archives that `ctr images import` takes.

`PAUSE` holds a pod's namespaces. `HOST` is empty but for its folders: a pod mounts the machine's
own /usr and Python into it, so that the environment under test runs there as it is.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

from windlass.testing.kubernetes.programs import run

PAUSE = "windlass.local/pause:1"
HOST = "windlass.local/host:1"
_PAUSE_SOURCE = """
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void end(int signal) { exit(0); }
static void reap(int signal) { while (waitpid(-1, NULL, WNOHANG) > 0); }
int main(void) {
  signal(SIGTERM, end);
  signal(SIGINT, end);
  signal(SIGCHLD, reap);
  for (;;) pause();
}
"""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_FOLDERS = ("usr", "etc", "proc", "sys", "dev", "tmp", "run", "opt", "root", "var")
_LINKS = ("bin", "sbin", "lib", "lib64")
_ETC = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "nsswitch.conf", "passwd", "group"
)  # fmt: skip


def write_pause(folder: Path) -> Path:
    source, program = folder / "pause.c", folder / "pause"
    source.write_text(_PAUSE_SOURCE)
    run("gcc", "-Os", "-static", "-s", "-o", str(program), str(source))
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(program, "pause")
    return _write(folder / "pause.tar", PAUSE, layer.getvalue(), ["/pause"])


def write_host(folder: Path) -> Path:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name in _FOLDERS:
            tar.addfile(_entry(name, tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755))
        for name in _LINKS:
            link = _entry(name, tarfile.SYMTYPE, 0o777)
            link.linkname = f"usr/{name}"
            tar.addfile(link)
        for name in _ETC:
            if (path := Path("/etc", name)).exists():
                tar.add(path, f"etc/{name}")
    return _write(folder / "host.tar", HOST, layer.getvalue(), None)


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.mode = kind, mode
    return found


def _write(path: Path, name: str, layer: bytes, entrypoint: list[str] | None) -> Path:
    config = json.dumps(
        {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {
                "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
                **({"Entrypoint": entrypoint} if entrypoint else {}),
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(layer)}"]},
        }
    ).encode()
    files = {
        "layer.tar": layer,
        f"{_digest(config)}.json": config,
        "manifest.json": json.dumps(
            [{"Config": f"{_digest(config)}.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
        ).encode(),
    }
    with tarfile.open(path, "w") as tar:
        for inner, content in files.items():
            entry = _entry(inner, tarfile.REGTYPE, 0o644)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

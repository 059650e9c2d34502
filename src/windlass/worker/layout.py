"""What a job sees of the file system: all of it to read, as its user may; to write, its own.

/               read-only            /dev         the usual few, and the GPUs it was granted
/tmp /var/tmp   the attempt's tmp/   /dev/shm     its own, as large as its memory
/proc           its own processes    /run         empty, but for the name resolver's files
the server's home   empty, but for the attempt's own folders and the job's checkpoints
its Python          at its own path, also from below a folder that is closed to others
"""

from __future__ import annotations

import glob
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Sequence, Set, Tuple

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_RESOLVER = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf")
_PARTS = ("bin", "lib", "lib64", "include", "share", "ssl", "pyvenv.cfg")
_MASKED = ("/tmp", "/var/tmp", "/run")


class Plan:
    """One room. `own` are folders to write in, `shown` to read, both at their own paths."""

    def __init__(
        self,
        own: Sequence[str],
        shown: Sequence[str],
        hidden: Sequence[str],
        tmp: str,
        network: bool,
        devices: Sequence[str] = (),
        shm_bytes: int = 0,
        over: Sequence[Tuple[str, str]] = (),
        network_only: bool = False,
    ) -> None:
        self.network_only = network_only
        # Mounts go where a path really leads; whoever comes by a link finds them there too.
        self.own = [os.path.realpath(path) for path in own]
        self.shown = [path for path in shown if _may_be_shown(path)]
        self.hidden = [os.path.realpath(path) for path in hidden]
        self.tmp = tmp
        self.network = network
        """Whether it shares the machine's network."""
        self.devices = list(devices)
        self.shm_bytes = shm_bytes
        self.over = list(over)
        """(file, path): laid over what is at that path, read-only."""

    @classmethod
    def of_network(cls) -> Plan:
        """Nothing but a network of its own."""
        return cls((), (), (), "", False, network_only=True)


def bubblewrap() -> Optional[str]:
    """From the system's own folders alone: this program is run as root."""
    for folder in PATH.split(":"):
        path = os.path.join(folder, "bwrap")
        if os.access(path, os.X_OK):
            return path
    return None


def arguments(plan: Plan) -> List[str]:
    """bubblewrap's words for it. Later ones lie over earlier ones."""
    if plan.network_only:
        return ["--die-with-parent", "--unshare-net", "--dev-bind", "/", "/"]
    words = ["--die-with-parent", "--cap-drop", "ALL"]
    words += ["--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    if not plan.network:
        words += ["--unshare-net"]
    words += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    words += ["--perms", "1777"] + (["--size", str(plan.shm_bytes)] if plan.shm_bytes else [])
    words += ["--tmpfs", "/dev/shm"]
    for device in plan.devices:
        words += ["--dev-bind-try", device, device]
    words += ["--perms", "0755", "--tmpfs", "/run"]
    for path in _RESOLVER:
        words += ["--ro-bind-try", path, path]
    for path in ("/tmp", "/var/tmp"):
        if os.path.isdir(path) and not os.path.islink(path):
            words += ["--bind", plan.tmp, path]
    masks = {path for path in plan.hidden if os.path.isdir(path)}
    for path in [*plan.shown, *plan.own]:
        closed = closed_above(path)
        if closed is not None:
            masks.add(closed)
    for path in sorted(masks):
        words += ["--perms", "0755", "--tmpfs", path]
    masked = [*_MASKED, *masks]
    shown = [path for path in plan.shown if is_below(path, masked)]
    for path in _folders_to([*shown, *plan.own], masked):
        # bubblewrap would make them for root alone.
        words += ["--perms", "0755", "--dir", path]
    for path in shown:
        words += ["--ro-bind-try", path, path]
    for path in plan.own:
        words += ["--bind", path, path]
    for source, path in plan.over:
        words += ["--ro-bind", source, path]
    return words + ["--chdir", "/"]


def of_python(python: Optional[str]) -> List[str]:
    """The folders a Python needs: those of its environment, and of each that its links lead
    through. Nothing for a path that is no Python's: a job names it as it likes, and must not
    open a closed folder by that."""
    found: List[str] = []
    waiting = [os.path.abspath(python)] if python else []
    seen: Set[str] = set()
    while waiting:
        path = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        prefix = os.path.dirname(os.path.dirname(path))
        for each in _parts_of(prefix) + _parts_of(os.path.realpath(prefix)):
            if each not in found:
                found.append(each)
        if os.path.islink(path):
            waiting.append(os.path.join(os.path.dirname(path), os.readlink(path)))
            waiting.append(os.path.realpath(path))
        home = _home_of_environment(prefix)
        if home:
            waiting.append(os.path.join(home, os.path.basename(path)))
    return found


def _parts_of(prefix: str) -> List[str]:
    library = os.path.join(prefix, "lib")
    try:
        is_python = any(name.startswith("python") for name in os.listdir(library))
    except OSError:
        is_python = False
    if not is_python or prefix in ("", "/", "/usr", "/usr/local"):
        return []
    parts = [os.path.join(prefix, name) for name in _PARTS]
    return [path for path in parts if os.path.exists(path)] + _elsewhere(library)


def _elsewhere(library: str) -> List[str]:
    """Folders outside an environment that its own `.pth` files add to the module path: packages
    installed in place. Only as the worker's own user wrote them: a job that brings its own
    environment opens nothing by it."""
    found = []
    for file in sorted(glob.glob(os.path.join(library, "python*", "site-packages", "*.pth"))):
        try:
            facts = os.lstat(file)
            if facts.st_uid != os.geteuid() or facts.st_mode & 0o022 or facts.st_size > 65536:
                continue
            with open(file, encoding="utf-8", errors="replace") as lines:
                paths = [line.strip() for line in lines]
        except OSError:
            continue
        found += [path for path in paths if os.path.isabs(path) and os.path.isdir(path)]
    return found


def closed_above(path: str) -> Optional[str]:
    """The topmost folder above `path` that others than its owner cannot pass; None: all can."""
    folder = "/"
    for part in os.path.dirname(path).strip("/").split("/"):
        folder = os.path.join(folder, part)
        try:
            if not os.stat(folder).st_mode & 0o001:
                return folder
        except OSError:
            return None
    return None


def _may_be_shown(path: str) -> bool:
    """Whether every closed folder above it is our own: what another user has closed stays so,
    whichever Python a job names."""
    folder = "/"
    for part in os.path.dirname(path).strip("/").split("/"):
        folder = os.path.join(folder, part)
        try:
            about = os.stat(folder)
        except OSError:
            return False
        if not about.st_mode & 0o001 and about.st_uid != os.geteuid():
            return False
    return True


def is_below(path: str, folders: Sequence[str]) -> bool:
    return any(path == each or path.startswith(each.rstrip("/") + "/") for each in folders)


def _folders_to(paths: Sequence[str], masked: Sequence[str]) -> List[str]:
    """The folders on the way to these paths that no longer exist once all is masked."""
    found: Set[str] = set()
    for path in paths:
        folder = os.path.dirname(path)
        while is_below(folder, masked) and folder not in masked:
            found.add(folder)
            folder = os.path.dirname(folder)
    return sorted(found)


def _home_of_environment(prefix: str) -> Optional[str]:
    """Where the Python of a virtual environment comes from."""
    try:
        with open(os.path.join(prefix, "pyvenv.cfg"), encoding="utf-8") as file:
            for line in file.read(65536).splitlines():
                name, _, value = line.partition("=")
                if name.strip() == "home" and os.path.isabs(value.strip()):
                    return value.strip()
    except (OSError, ValueError):
        pass
    return None

"""The user's code out of a git repository, by the node's own `git`.

It runs as a rank would: as the job's user, in its room, with its limits, so an address opens
nothing that the job could not open itself. No other transport than the four that the server lets
through, no question to a terminal, no hook, no submodule; an address or a ref never stands where
an option could.

    ref ──fetch──► commit here ──report──► commit of the job ──(another: fetch that one)──► work/

The commit that is reported first is the job's, for all its nodes and all its attempts.
"""

from __future__ import annotations

import os
import select
import signal
import time

from windlass.worker import environment, needs, spawn
from windlass.worker.launch import Launch, Refused
from windlass.worker.server import Gone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Optional, Tuple

    from windlass.worker.isolation import Isolation

SECONDS = 480.0
"""For all of it: a gang that is not whole after ten minutes was badly launched."""
MAX_BYTES = 16 * 2**30
MAX_FILES = 100_000
_AGAIN = (1.0, 3.0)
_KEPT_WORDS = 1 << 16
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "GIT_SSL_CAINFO")
_OPTIONS = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "gc.auto=0", "maintenance.auto=false",
    "advice.detachedHead=false", "submodule.recurse=false", "init.defaultBranch=main",
)  # fmt: skip


class NoCode(Refused):
    """Git did not bring it. `advice` is what may be done, as a command where there is one."""

    def __init__(self, words: str, advice: str) -> None:
        super().__init__(words)
        self.advice = advice


class Repository:
    """What `launch.json` says of the code, and how to bring it into `work/`."""

    def __init__(
        self,
        launch: Launch,
        isolation: Isolation,
        spawner: spawn.Spawner,
        told_to_end: Callable[[], bool],
    ) -> None:
        asked = launch.git or {}
        self.url: str = asked["url"]
        self.ref: Optional[str] = asked.get("ref")
        self.commit: Optional[str] = asked.get("commit")
        self._launch = launch
        self._isolation = isolation
        self._spawner = spawner
        self._told_to_end = told_to_end
        self._deadline = time.monotonic() + SECONDS
        self._variables = self._environment()

    def lay_out(self, agreed: Callable[[str], str]) -> None:
        """Fill `work/`. `agreed` tells the server which commit was found and returns the one that
        the job runs. Raises NoCode, and Gone when we are told to end meanwhile."""
        self._check(self._git("init", "--quiet", "--template="))
        commit = self.commit
        if commit is None:
            commit = self._found(self.ref or "HEAD")
            wanted = agreed(commit)
            if wanted != commit:  # another node, or an earlier attempt, was first
                commit = self._found(wanted)
        else:
            commit = self._found(commit)
        self._measure(commit)
        self._check(self._git("checkout", "--quiet", "--force", "--detach", commit))

    def _found(self, ref: str) -> str:
        """Fetch a branch, a tag or a commit; which commit it is. As little as can be had comes:
        servers without shallow fetches give the history too, and one that hands out no single
        commits gives all of its branches and tags."""
        name = "FETCH_HEAD"
        status, words = self._fetched("--depth=1", ref)
        if status and "dumb http transport" in words:
            status, words = self._fetched(ref)
        if status and _is_hexadecimal(ref) and _kind_of(words) in ("ref", ""):
            every = ("+refs/heads/*:refs/windlass/heads/*", "+refs/tags/*:refs/windlass/tags/*")
            shallow = os.path.exists(self._launch.path("work", ".git", "shallow"))
            status, words = self._fetched(*(("--unshallow",) if shallow else ()), *every)
            name = ref
        if not status:
            status, found = self._git("rev-parse", "--verify", "--quiet", name + "^{commit}")
            commit = found.strip().splitlines()[0] if found.strip() else ""
            if not status and len(commit) in (40, 64):
                return commit
            words = "couldn't find remote ref"
        raise self._refusal(words, ref)

    def _fetched(self, *words: str) -> Tuple[int, str]:
        """A host that does not answer is asked again: networks have moments."""
        options = [word for word in words if word.startswith("--")]
        refs = [word for word in words if not word.startswith("--")]
        command = ["fetch", "--quiet", "--no-tags", "--no-recurse-submodules", *options]
        for pause in (*_AGAIN, None):
            status, said = self._git(*command, "--", self.url, *refs)
            if not status or pause is None or _kind_of(said) != "host":
                break
            self._wait(pause)
        return status, said

    def _measure(self, commit: str) -> None:
        """As for code that is sent: so much and no more."""
        status, listed = self._git("ls-tree", "-r", "-z", "--long", commit, most=64 << 20)
        if status:
            raise self._refusal(listed, commit)
        sizes = [line.split("\t", 1)[0].split()[-1] for line in listed.split("\0") if line]
        size = sum(int(each) for each in sizes if each.isdigit())
        if len(sizes) > MAX_FILES or size > MAX_BYTES:
            words = "the code in %s is too large: %d files, %d bytes" % (
                self.url,
                len(sizes),
                size,
            )
            raise NoCode(words, "take large files out of the repository: they are data")

    def _check(self, found: Tuple[int, str]) -> None:
        status, words = found
        if status:
            raise self._refusal(words, self.commit or self.ref or "HEAD")

    def _refusal(self, words: str, ref: str) -> NoCode:
        need = needs.in_words(words, self._launch.directory)
        if need:
            raise needs.Lacking(need, _last(words))
        name, kind = self._launch.job_name, _kind_of(words)
        again = "windlass rerun %s" % name
        if kind == "ref":
            if len(ref) in (40, 64) and _is_hexadecimal(ref):
                said = "%s has no commit %s (any more)" % (self.url, ref[:12])
            elif ref == "HEAD":
                said = "%s has no default branch" % self.url
            else:
                said = "%s has no branch, tag or commit %r" % (self.url, ref)
            return NoCode(said, "%s --git '%s#REF' with a ref that it has" % (again, self.url))
        if kind == "login":
            return NoCode(
                "%s wants a login, and node %s has none for it" % (self.url, self._launch.node),
                "windlass run --code DIR sends your own clone; or let the node read it",
            )
        if kind == "ssh":
            return NoCode(
                "node %s has no ssh, which %s needs" % (self._launch.node, self.url),
                "install ssh on node %s, or give the address by https" % self._launch.node,
            )
        if kind == "repository":
            return NoCode(
                "there is no repository at %s, or none without a login" % self.url,
                "%s --git URL with another address" % again,
            )
        if kind == "host":
            return NoCode(
                "node %s does not reach %s: %s" % (self._launch.node, self.url, _last(words)),
                "%s once it does; windlass run --code DIR needs no such way" % again,
            )
        return NoCode("git could not bring %s: %s" % (self.url, _last(words)), again)

    # -- the program

    def _git(self, *words: str, most: int = _KEPT_WORDS) -> Tuple[int, str]:
        """(status, what it said). Raises NoCode when there is no git, or time is up."""
        launch = self._launch
        command = ["git"]
        for option in _OPTIONS:
            command += ["-c", option]
        pid, out, err, trouble = self._spawner.start(
            [*command, *words],
            self._variables,
            launch.path("work"),
            self._isolation.cgroups.member_files(launch.members[0]),
            self._isolation.confinement,
            launch.max_disk_bytes,
        )
        reason, status = "", 0
        try:
            said = self._read(out, err, most)
        except BaseException:
            _kill(pid)
            os.close(trouble)
            raise
        else:
            reason = spawn.trouble_of(["git"], trouble)
        finally:
            os.close(out)
            os.close(err)
            _, status = os.waitpid(pid, 0)
        _kill(pid)  # helpers that it left behind
        if reason:
            missing = reason.startswith("command not found")
            where = "node %s has no git" % launch.node if missing else reason
            raise NoCode(
                "%s, and the code is in %s" % (where, self.url),
                "install git on node %s, or send the code: windlass run --code DIR" % launch.node,
            )
        return status, said

    def _read(self, out: int, err: int, most: int) -> str:
        """Both streams to their ends, the last part of it; or until time is up."""
        said, live = b"", [out, err]
        while live:
            if self._told_to_end():
                raise Gone("told to stop")
            left = self._deadline - time.monotonic()
            if left <= 0:
                words = "the code in %s was not here within %d s" % (self.url, SECONDS)
                raise NoCode(words, "windlass rerun %s" % self._launch.job_name)
            ready, _, _ = select.select(live, [], [], min(left, 0.5))
            for each in ready:
                piece = os.read(each, 1 << 16)
                if not piece:
                    live.remove(each)
                said = (said + piece)[-most:]
        return said.decode("utf-8", "replace")

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._told_to_end() and time.monotonic() < end:
            time.sleep(0.05)

    def _environment(self) -> Dict[str, str]:
        launch = self._launch
        found = environment.base(self._isolation.variables(os.environ))
        for name, value in launch.vars.items():
            if name in _PROXIES or name.lower() in _PROXIES:
                found[name] = value
        found.update(
            LC_ALL="C",
            TMPDIR=self._isolation.tmp,
            GIT_ALLOW_PROTOCOL="https:http:ssh" + (":file" * self.url.startswith("file:")),
            GIT_TERMINAL_PROMPT="0",
            GIT_ASKPASS="",
            GIT_SSH_COMMAND="ssh -oBatchMode=yes -oStrictHostKeyChecking=accept-new"
            " -oConnectTimeout=20",
            GIT_HTTP_LOW_SPEED_LIMIT="1000",
            GIT_HTTP_LOW_SPEED_TIME="60",
            # By this mark whoever cleans up after us finds it.
            WINDLASS_RUN_DIR=launch.path("run"),
        )
        if self._isolation.uid is not None:
            found["GIT_CONFIG_GLOBAL"] = self._config()
        return found

    def _config(self) -> str:
        """The job's user owns no repository of the machine; that it may read one is enough."""
        path = self._launch.path("files", "gitconfig")
        with open(path, "w") as file:
            file.write("[safe]\n\tdirectory = *\n")
        os.chmod(path, 0o644)
        return path


_SIGNS = (
    ("ssh", ("cannot run ssh",)),
    ("ref", (
        "couldn't find remote ref", "not our ref", "unadvertised object", "no such remote ref",
        "needed a single revision", "cannot obtain needed",
    )),
    ("login", (
        "could not read username", "could not read password", "authentication failed",
        "terminal prompts disabled", "permission denied (", "error: 401", "error: 403",
        "too many authentication failures",
    )),
    ("host", (
        "could not resolve host", "failed to connect", "couldn't connect", "connection refused",
        "connection timed out", "timed out", "no route to host", "network is unreachable",
        "host key verification failed", "connection reset", "empty reply", "ssl", "certificate",
        "error: 50", "could not resolve hostname", "name or service not known",
        "operation too slow", "error: 429",
    )),
    ("repository", (
        "not found", "error: 404", "does not appear to be a git repository", "does not exist",
        "not a git repository", "no such file or directory",
    )),
)  # fmt: skip


def _kind_of(words: str) -> str:
    """What git's words mean: ref, login, host, ssh or repository; "" for anything else."""
    low = words.lower()
    return next((kind for kind, signs in _SIGNS if any(sign in low for sign in signs)), "")


def _last(words: str) -> str:
    """The line that says most: git's own `fatal:`, else the last one."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    for head in ("fatal: ", "error: ", ""):
        for line in reversed(lines):
            if line.startswith(head):
                return line[len(head) :][:300]
    return "it said nothing"


def _is_hexadecimal(ref: str) -> bool:
    return 7 <= len(ref) <= 64 and not ref.strip("0123456789abcdef")


def _kill(pid: int) -> None:
    """Whatever of it is left, helpers too: it has its own group."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        pass

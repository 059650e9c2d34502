"""A self-test on the real cluster: what an operator would otherwise learn from the first job."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import time
from pathlib import Path

from windlass.engines.kubernetes import states
from windlass.engines.kubernetes.api import Api, ApiFailed, Object
from windlass.engines.kubernetes.bringing import Worker
from windlass.engines.kubernetes.offers import refusal
from windlass.engines.kubernetes.pods import (
    Ask,
    Setting,
    group_path,
    labels_of,
    plain,
    shared_mount,
)
from windlass.engines.kubernetes.states import Phase

Finding = tuple[str, bool, str]

_SECONDS = 40.0
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_NEEDED = (
    ("pods", ("create", "get", "list", "watch", "delete")),
    ("configmaps", ("create", "list", "delete")),
)
_NEEDED_EVERYWHERE = (("nodes", ("get", "list", "watch")), ("pods", ("list",)))
# In a pod, with the worker's own Python: read what we wrote, write what we read, call the server.
_PROBE = """
import sys, urllib.request
folder, url = sys.argv[1:]
said = []
try:
    word = open(folder + "/asked").read()
    open(folder + "/answered", "w").write(word)
    said.append("files ok")
except OSError as err:
    said.append("files %s" % err)
try:
    if url:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        opener.open(url + "/api/v1/health", timeout=5).read()
        said.append("server ok")
except Exception as err:
    said.append("server %s" % err)
said.append("python %d.%d" % sys.version_info[:2])
open("/dev/termination-log", "w").write("\\n".join(said))
"""


async def look_at(api: Api, ask: Ask, setting: Setting, worker: Worker, url: str) -> list[Finding]:
    try:
        version = await api.get("/version", trying=True)
    except ApiFailed as err:
        return [("API server", False, str(err))]
    where = (await api.access()).where
    found = [("API server", True, f"{where} answers, version {version.get('gitVersion', '?')}")]
    try:
        found.append(await _rights(api, ask))
        nodes = await api.items("/api/v1/nodes")
    except ApiFailed as err:
        return [*found, ("nodes", False, str(err))]
    good = [each for each in nodes if not refusal(each, ask.choice)]
    reasons = sorted(filter(None, (refusal(each, ask.choice) for each in nodes)))
    more = f"; {'; '.join(reasons[:3])}" if reasons else ""
    found.append(("nodes", bool(good), f"{len(good)} of {len(nodes)} nodes can be used{more}"))
    if not ask.image:
        words = "no image is set: only jobs that name one can run, and no pod is tried"
        return [*found, ("image", True, words)]
    if good:
        node = good[secrets.randbelow(len(good))]["metadata"]["name"]
        found += await _in_a_pod(api, ask, setting, worker, url, node)
    return found


async def _rights(api: Api, ask: Ask) -> Finding:
    wanted = [(verb, resource, ask.namespace, "") for resource, verbs in _NEEDED for verb in verbs]
    wanted += [
        (verb, resource, "", "") for resource, verbs in _NEEDED_EVERYWHERE for verb in verbs
    ]
    if path := group_path(ask):
        group = path.split("/")[2]
        wanted += [(verb, "podgroups", ask.namespace, group) for verb in ("create", "delete")]
    answers = await asyncio.gather(*(_may(api, *each) for each in wanted))
    lacking = [
        f"{verb} {resource}" + (f" in {namespace}" if namespace else " in all of the cluster")
        for (verb, resource, namespace, _), may in zip(wanted, answers, strict=True)
        if not may
    ]
    if lacking:
        return "rights", False, f"the user of the kubeconfig may not: {', '.join(lacking)}"
    return "rights", True, f"all that is needed in namespace {ask.namespace}"


async def _may(api: Api, verb: str, resource: str, namespace: str, group: str) -> bool:
    asked: Object = {"verb": verb, "resource": resource, "group": group}
    if namespace:
        asked["namespace"] = namespace
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    said = await api.ask("POST", _REVIEWS, review)
    return bool((said.get("status") or {}).get("allowed"))


async def _in_a_pod(
    api: Api, ask: Ask, setting: Setting, worker: Worker, url: str, node: str
) -> list[Finding]:
    base = f"/api/v1/namespaces/{ask.namespace}"
    name = f"wl-check-{secrets.token_hex(6)}"
    folder = setting.home / "attempts" / f".check-{secrets.token_hex(6)}"
    word = secrets.token_hex(8)
    pod = plain(
        name, labels_of(setting.server, check="yes"), node,
        ["-I", "-S", "-c", _PROBE, str(folder), url], setting, ask, image=ask.image,
        mounts=[] if ask.share.is_none else [shared_mount(setting, ask, folder)],
        resources={"requests": {"cpu": "10m"}},
    )  # fmt: skip
    pod["spec"]["terminationGracePeriodSeconds"] = 1
    try:
        await asyncio.to_thread(_ask_in, folder, word)
        await api.create(f"{base}/configmaps", worker.manifest(setting.server))
        await api.create(f"{base}/pods", pod)
        ended, state = await _until_over(api, f"{base}/pods/{name}")
    except ApiFailed as err:
        return [("pod", False, f"none could be made: {err}")]
    except OSError as err:
        return [("files", False, str(err))]
    else:
        if state.phase is not Phase.OVER:
            why = state.reason or "it was not started"
            return [("pod", False, f"on {node} within {_SECONDS:.0f} s: {why}")]
        if not ended.startswith(("files", "server")):
            return [("pod", False, f"{ask.python} in {ask.image} on {node}: {state.reason}")]
        told = dict(line.partition(" ")[::2] for line in ended.splitlines())
        answered = await asyncio.to_thread(_answer_in, folder)
        return _told(told, answered == word, ask, setting, node, url)
    finally:
        with contextlib.suppress(ApiFailed):
            await api.delete(f"{base}/pods/{name}", 1)
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _until_over(api: Api, path: str) -> tuple[str, states.PodState]:
    """What it said, and how it stands at the end of our patience."""
    ends = time.monotonic() + _SECONDS
    while True:
        pod = await api.get(path)
        state = states.read(pod)
        if state.phase is Phase.OVER:
            statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
            ended = (statuses[0].get("state") or {}).get("terminated") or {}
            return str(ended.get("message") or ""), state
        if state.phase is Phase.STUCK or time.monotonic() > ends:
            return "", state
        await asyncio.sleep(0.2)


def _told(
    told: dict[str, str], shared: bool, ask: Ask, setting: Setting, node: str, url: str
) -> list[Finding]:
    python = told.get("python", "?")
    found = [("pod", True, f"Python {python} ran in {ask.image} on {node}")]
    if not ask.share.is_none:
        found.append((
            "files", shared,
            "the home is shared with the pods" if shared
            else f"{setting.home} is not shared with the pods: {told.get('files', 'no answer')}",
        ))  # fmt: skip
    if url:
        well = told.get("server") == "ok"
        found.append((
            "server", well,
            f"{url} is reached from the pods" if well
            else f"{url} is not reached from the pods: {told.get('server', 'no answer')}",
        ))  # fmt: skip
    return found


def _ask_in(folder: Path, word: str) -> None:
    folder.mkdir(mode=0o700, parents=True)
    (folder / "asked").write_text(word)


def _answer_in(folder: Path) -> str:
    """A look at the folder first, so that a network file system shows what was just written."""
    list(folder.iterdir())
    with contextlib.suppress(OSError):
        return (folder / "answered").read_text()
    return ""

"""What an operator may say of a Kubernetes engine: `windlass engine add k8s --kind kubernetes
-s image=registry.example/train:1`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

from windlass.core.errors import InvalidInput
from windlass.engines.kubernetes.offers import Choice, Toleration
from windlass.engines.kubernetes.pods import GROUPS, Ask, Share, Volume
from windlass.engines.options import seconds

KNOWN = {
    "kubeconfig": "the file that says how the cluster is reached; without it $KUBECONFIG, the "
    "service account of the pod that the server runs in, or ~/.kube/config",
    "context": "which of its contexts",
    "namespace": "where pods are made; without it the context's",
    "image": "the image of jobs that name none; it must have a Python",
    "python": "the Python of the images that runs the worker (python3)",
    "image-pull-secret": "secrets of the namespace for private registries, by comma",
    "share": "how pods see the server's home: host, none, pvc:NAME[:ROOT] or "
    "nfs:SERVER:/PATH[:ROOT]",
    "volumes": "more that every pod sees, by comma: host:/PATH, pvc:NAME:/PATH, "
    "nfs:SERVER:/EXPORT:/PATH, each with :ro for read-only",
    "service-account": "whom pods are to the cluster; without it they get no token",
    "priority-class": "the priority class of the pods",
    "node-selector": "KEY=VALUE by comma: only nodes with these labels are used",
    "tolerations": "taints that are no hindrance, by comma: KEY, KEY=VALUE, KEY:EFFECT or "
    "KEY=VALUE:EFFECT",
    "gpu-resource": "under which name nodes count GPUs; without it any that ends in /gpu",
    "devices": "NAME=COUNT by comma: more devices that every pod gets, such as rdma/hca=1",
    "pod-group": "volcano, coscheduling or kueue: whole gangs are admitted by it",
    "queue": "the queue of Volcano or Kueue",
    "owner": "API/VERSION/KIND/NAME/UID of the object that pods go with when it is deleted",
    "url": "this server's address as the pods reach it; without it the address it has itself",
    "lease": "seconds without a word from the server after which a worker ends, from 5 to 3600",
    "poll": "seconds between two looks at all nodes and pods, from 0.2 to 600",
}
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,500}")
_URL = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")
_KEY = r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_PAIR = re.compile(rf"({_KEY})=([A-Za-z0-9]?[A-Za-z0-9._-]{{0,62}})")
_TOLERATION = re.compile(rf"({_KEY})?(?:=([A-Za-z0-9._-]{{0,63}}))?(?::([A-Za-z]+))?")
_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
_EXTENDED = re.compile(r"[a-z0-9.-]{1,253}/[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SHARE = "host, none, pvc:NAME[:ROOT] or nfs:SERVER:/PATH[:ROOT]"


def checked(given: Mapping[str, str]) -> dict[str, Any]:
    """As the engine takes them. Raises InvalidInput that names the option, what was found and
    what is allowed."""
    for key in given:
        if key not in KNOWN:
            raise InvalidInput(
                f"options.{key}: not known to a Kubernetes engine",
                hint=f"one of {', '.join(KNOWN)}",
            )
    readers: dict[str, Callable[[str], Any]] = {
        "namespace": _name, "image": _image, "python": _python, "share": _share,
        "image-pull-secret": lambda text: tuple(map(_name, _words(text))),
        "service-account": _name, "priority-class": _name, "gpu-resource": _extended,
        "volumes": lambda text: tuple(map(_volume, _words(text))),
        "devices": lambda text: tuple(map(_device, _words(text))),
        "pod-group": _group, "queue": _name, "owner": _owner,
    }  # fmt: skip
    fields = {"image-pull-secret": "pull_secrets", "pod-group": "group"}
    ask: dict[str, Any] = {}
    for key, reader in readers.items():
        if key in given:
            ask[fields.get(key, key.replace("-", "_"))] = _read(key, given[key], reader)
    selector = _read("node-selector", given.get("node-selector", ""), _pairs)
    tolerations = _read("tolerations", given.get("tolerations", ""), _tolerations)
    ask["choice"] = Choice(selector, tolerations)
    found: dict[str, Any] = {"ask": Ask(**ask)}
    for key in ("kubeconfig", "context"):
        if key in given:
            found[key] = given[key]
    if "kubeconfig" in found and not found["kubeconfig"].startswith("/"):
        raise InvalidInput(f"options.kubeconfig: a full path (found {given['kubeconfig']!r})")
    if "url" in given:
        if not _URL.fullmatch(given["url"]):
            raise InvalidInput(f"options.url: http://host:port (found {given['url']!r})")
        found["url"] = given["url"].rstrip("/")
    for key, least, most in (("poll", 0.2, 600.0), ("lease", 5.0, 3600.0)):
        if key in given:
            found[f"{key}_seconds"] = seconds(key, given[key], least, most)
    return found


class _Wrong(Exception):
    """What is allowed, in words."""


def _read(key: str, text: str, reader: Callable[[str], Any]) -> Any:
    try:
        return reader(text)
    except _Wrong as err:
        raise InvalidInput(f"options.{key}: {err} (found {text[:200]!r})") from None


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise _Wrong("a name of Kubernetes': small letters, digits, '-' and '.'")
    return text


def _image(text: str) -> str:
    if not _IMAGE.fullmatch(text):
        raise _Wrong("an image such as registry.example/train:1")
    return text


def _python(text: str) -> str:
    if not re.fullmatch(r"(/[^\s:]+)+|[A-Za-z0-9._-]+", text):
        raise _Wrong("a path in the image, or a name such as python3")
    return text


def _path(text: str) -> str:
    """Absolute, plain, and not the root."""
    path = PurePosixPath(text)
    if not text.startswith("/") or ".." in path.parts or len(path.parts) < 2:
        raise _Wrong(f"{text!r} is no full path")
    return str(path)


def _share(text: str) -> Share:
    kind, _, rest = text.partition(":")
    if text in ("host", "none"):
        return Share(text)
    if kind == "pvc" and rest:
        name, mark, root = rest.partition(":")
        return Share("pvc", _name(name), _path(root) if mark else "")
    if kind == "nfs":
        match rest.split(":"):
            case [server, path]:
                return Share("nfs", f"{_host(server)}:{_path(path)}")
            case [server, path, root]:
                return Share("nfs", f"{_host(server)}:{_path(path)}", _path(root))
    raise _Wrong(_SHARE)


def _host(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}", text):
        raise _Wrong(f"{text!r} is no host")
    return text


def _volume(text: str) -> Volume:
    words = text.split(":")
    read_only = words[-1] == "ro"
    match words[:-1] if read_only else words:
        case ["host", path]:
            return Volume(Share("host"), _path(path), read_only)
        case ["pvc", name, path]:
            return Volume(Share("pvc", _name(name)), _path(path), read_only)
        case ["nfs", server, exported, path]:
            source = f"{_host(server)}:{_path(exported)}"
            return Volume(Share("nfs", source), _path(path), read_only)
    raise _Wrong(
        "host:/PATH, pvc:NAME:/PATH or nfs:SERVER:/EXPORT:/PATH, each with or without :ro"
    )


def _extended(text: str) -> str:
    if not _EXTENDED.fullmatch(text):
        raise _Wrong("a resource such as nvidia.com/gpu")
    return text


def _device(text: str) -> tuple[str, int]:
    name, _, count = text.partition("=")
    if not count.isdigit() or not 1 <= int(count) <= 1000:
        raise _Wrong("NAME=COUNT by comma, such as rdma/hca=1")
    return _extended(name), int(count)


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    found = []
    for word in _words(text):
        pair = _PAIR.fullmatch(word)
        if pair is None:
            raise _Wrong(f"KEY=VALUE by comma; {word!r} is none")
        found.append((pair[1], pair[2]))
    return tuple(found)


def _tolerations(text: str) -> tuple[Toleration, ...]:
    found = []
    for word in _words(text):
        parts = _TOLERATION.fullmatch(word)
        if parts is None or (parts[3] and parts[3] not in _EFFECTS):
            raise _Wrong(f"KEY[=VALUE][:EFFECT] by comma, EFFECT one of {', '.join(_EFFECTS)}")
        if not parts[1] and parts[2] is not None:
            raise _Wrong("KEY[=VALUE][:EFFECT] by comma: a value needs its key")
        found.append(Toleration(parts[1] or "", parts[2], parts[3] or ""))
    return tuple(found)


def _group(text: str) -> str:
    if text not in GROUPS:
        raise _Wrong(f"one of {', '.join(GROUPS)}")
    return text


def _owner(text: str) -> tuple[tuple[str, str], ...]:
    words = text.split("/")
    if len(words) not in (4, 5) or not all(words):
        raise _Wrong("API/VERSION/KIND/NAME/UID, such as apps/v1/Deployment/windlass/6f1c…")
    version, (kind, name, uid) = "/".join(words[:-3]), words[-3:]
    return (("apiVersion", version), ("kind", kind), ("name", name), ("uid", uid))

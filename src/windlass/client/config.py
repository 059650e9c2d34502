"""Which server, which key, which project: each setting with the place it came from.

Order: flag > environment > project file > user file > default.

- project file: `windlass.toml`, or `[tool.windlass]` in `pyproject.toml`, in this directory or
  the nearest one above it; never keys, because project files are committed
- user file: `config.toml` (settings and contexts) and `credentials.json` (written by the first
  `windlass up`, mode 0600), both under `$WINDLASS_HOME` or `~/.config/windlass`

A *context* is a named server in `config.toml`:

    context = "lab"
    [contexts.lab]
    url = "https://lab.example:7400"
    access_key = "WL…"
    secret_key = "…"
    project = "vision"

`windlass login` writes one. A key, or a token, and the project go together: the project of a
context or of the credentials file is not said with a key from elsewhere, which has its own.

Without one, the server of this machine is meant; its address is that of `server.json` when a
server wrote one, because a restarted server may have another port.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from windlass.client.places import config_dir, data_dir, write_private
from windlass.core.errors import InvalidInput

DEFAULTS = {
    "url": "http://127.0.0.1:7400",
    "project": "",
    "context": "",
    "output": "table",
    "access_key": "",
    "secret_key": "",
    "token": "",
}
ENVIRONMENT = {name: f"WINDLASS_{name.upper()}" for name in DEFAULTS}
IN_PROJECT_FILE = ("url", "project", "context", "output")
CONTEXT_FIELDS = ("url", "project", "access_key", "secret_key", "token")
OUTPUTS = ("table", "json", "jsonl", "yaml", "csv", "name")
SECRET = ("secret_key", "token")
TOKEN_PREFIX = "wl_"
"""Of an API token. A job's own (`wlr_…`, in its WINDLASS_TOKEN) is not one."""


@dataclass(frozen=True)
class Setting:
    name: str
    value: str
    origin: str

    @property
    def shown(self) -> str:
        """The value as it may stand on a screen."""
        return "…" + self.value[-4:] if self.name in SECRET and self.value else self.value


@dataclass(frozen=True)
class Layer:
    """One place settings come from; an earlier layer wins over a later one."""

    origin: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class Config:
    layers: tuple[Layer, ...] = ()
    contexts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def load(
        cls, flags: Mapping[str, str | None] | None = None, start: Path | None = None
    ) -> Config:
        """Read every place once. Raises InvalidInput for a file that cannot be understood."""
        given = Layer("flag", {name: value for name, value in (flags or {}).items() if value})
        env = Layer(
            "env",
            {name: os.environ[key] for name, key in ENVIRONMENT.items() if os.environ.get(key)},
        )
        project = _project_layer(start or Path.cwd())
        user_path = config_dir() / "config.toml"
        user = _read_toml(user_path)
        contexts = {str(k): _texts(v) for k, v in (user.pop("contexts", None) or {}).items()}
        layers = [given, env, *project]
        if user:
            layers.append(Layer(str(user_path), _texts(user)))
        chosen = _first(layers, "context")
        if chosen:
            if chosen.value not in contexts:
                known = ", ".join(sorted(contexts)) or "none"
                raise InvalidInput(
                    f"no context {chosen.value!r} (from {chosen.origin}); known: {known}",
                    hint=f"contexts stand in {user_path}",
                )
            # A context stands for a whole server: it wins over the files, not over flags.
            layers.insert(2, Layer(f"context {chosen.value}", contexts[chosen.value]))
        else:
            layers += _local_layers()
        layers.append(Layer("default", DEFAULTS))
        return cls(tuple(layers), contexts)

    def get(self, name: str) -> Setting:
        """One setting with the place it came from. Raises InvalidInput."""
        if name not in DEFAULTS:
            raise InvalidInput(f"no setting {name!r}; known: {', '.join(DEFAULTS)}")
        found = _first(self.layers, name)
        return found or Setting(name, DEFAULTS[name], "default")

    @property
    def project(self) -> str | None:
        """What calls say that they are about; None: nobody said, it is the credential's own."""
        given = self.get("project")
        if given.origin == "default":
            return None
        layer = next(layer for layer in self.layers if layer.origin == given.origin)
        held = {name for name in ("access_key", "token") if layer.values.get(name)}
        key, token = self.credential
        used = key if key.value else token
        return None if held and used.origin != given.origin else given.value

    @property
    def credential(self) -> tuple[Setting, Setting]:
        """The access key and the token, one of them empty: the one from the nearer place."""
        key, token = self.get("access_key"), self.get("token")
        if token.value and not token.value.startswith(TOKEN_PREFIX):
            token = Setting("token", "", "default")
        origins = [layer.origin for layer in self.layers]
        if key.value and token.value:
            if origins.index(token.origin) < origins.index(key.origin):
                key = Setting("access_key", "", "default")
            else:
                token = Setting("token", "", "default")
        return key, token

    def __iter__(self) -> Iterator[Setting]:
        return (self.get(name) for name in DEFAULTS)

    @property
    def local(self) -> bool:
        """Whether the server meant is the one of this installation, which `up` may start."""
        url = self.get("url")
        mine = ("default", str(data_dir() / "server.json"), str(config_dir() / "credentials.json"))
        return url.origin in mine and loopback(url.value)


def loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def save(name: str, value: str) -> Path:
    """Set one setting (or `contexts.NAME.FIELD`) in the user's file. Returns its path."""
    path = config_dir() / "config.toml"
    tree = _read_toml(path)
    parts = name.split(".")
    if len(parts) == 3 and parts[0] == "contexts":
        known: tuple[str, ...] = CONTEXT_FIELDS
        if parts[2] not in known:
            raise InvalidInput(f"no field {parts[2]!r} in a context; known: {', '.join(known)}")
        tree.setdefault("contexts", {}).setdefault(parts[1], {})[parts[2]] = value
    elif name in DEFAULTS:
        tree[name] = value
    else:
        raise InvalidInput(
            f"no setting {name!r}; known: {', '.join(DEFAULTS)}, contexts.NAME.FIELD"
        )
    if name == "output" and value not in OUTPUTS:
        raise InvalidInput(f"output: {value!r} is not one of {', '.join(OUTPUTS)}")
    write_private(path, _toml(tree))
    return path


def save_context(name: str, values: Mapping[str, str], *, choose: bool = True) -> Path:
    """Keep a server under a name, in place of what was kept under it, and speak to it from now
    on. Returns the file's path."""
    path = config_dir() / "config.toml"
    tree = _read_toml(path)
    tree.setdefault("contexts", {})[name] = {k: v for k, v in values.items() if v}
    if choose:
        tree["context"] = name
    write_private(path, _toml(tree))
    return path


def forget_context(name: str) -> Path:
    """Take a server out, its key with it. Raises InvalidInput for one that is not there."""
    path = config_dir() / "config.toml"
    tree = _read_toml(path)
    contexts = tree.get("contexts") or {}
    if name not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise InvalidInput(f"no context {name!r}; known: {known}")
    del contexts[name]
    if tree.get("context") == name:
        del tree["context"]
    write_private(path, _toml(tree))
    return path


def choose_context(name: str) -> Path:
    """Speak to that server from now on; "" to the one of this machine. Raises InvalidInput."""
    path = config_dir() / "config.toml"
    tree = _read_toml(path)
    contexts = tree.get("contexts") or {}
    if name and name not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise InvalidInput(f"no context {name!r}; known: {known}")
    tree.pop("context", None)
    if name:
        tree["context"] = name
    write_private(path, _toml(tree))
    return path


def _first(layers: Any, name: str) -> Setting | None:
    for layer in layers:
        if layer.values.get(name):
            return Setting(name, layer.values[name], layer.origin)
    return None


def _local_layers() -> list[Layer]:
    layers = []
    server = _read_json(data_dir() / "server.json")
    if isinstance(server.get("url"), str):
        layers.append(Layer(str(data_dir() / "server.json"), {"url": server["url"]}))
    path = config_dir() / "credentials.json"
    credentials = _read_json(path)
    if credentials:
        values = {name: str(credentials[name]) for name in DEFAULTS if credentials.get(name)}
        layers.append(Layer(str(path), values))
        if values.get("url") and not loopback(values["url"]):
            layers.reverse()  # the key belongs to a server elsewhere: that one is meant
    return layers


def _project_layer(start: Path) -> list[Layer]:
    for folder in (start, *start.parents):
        path = folder / "windlass.toml"
        values = _read_toml(path) if path.is_file() else None
        if values is None:
            path = folder / "pyproject.toml"
            if path.is_file():
                values = (_read_toml(path).get("tool") or {}).get("windlass")
        if values is None:
            continue
        for name in values:
            if name not in IN_PROJECT_FILE:
                raise InvalidInput(
                    f"{path}: no setting {name!r} here; known: {', '.join(IN_PROJECT_FILE)}"
                )
        return [Layer(str(path), _texts(values))]
    return []


def _texts(values: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in dict(values).items()}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as err:
        raise InvalidInput(f"{path} cannot be read: {err}") from err
    if not isinstance(value, dict):
        raise InvalidInput(f"{path} does not hold a JSON object")
    return value


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as err:
        raise InvalidInput(f"{path} cannot be read: {err}") from err
    import tomllib  # only when there is a file: most users have none, and starting is the product

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        raise InvalidInput(f"{path} is not valid TOML: {err}") from err


def _toml(tree: Mapping[str, Any]) -> str:
    lines = [
        f"{name} = {json.dumps(str(value), ensure_ascii=False)}"
        for name, value in tree.items()
        if name != "contexts"
    ]
    for name, values in (tree.get("contexts") or {}).items():
        lines += ["", f"[contexts.{json.dumps(name, ensure_ascii=False)}]"]
        lines += [f"{k} = {json.dumps(str(v), ensure_ascii=False)}" for k, v in values.items()]
    return "\n".join(lines) + "\n"

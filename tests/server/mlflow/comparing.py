"""One call, made to a real MLflow server and to ours, and the two answers made comparable.

    pair.call("POST", "runs/create", {"experiment_id": "{first}"}, keep={"run": "run.info.run_id"})

Names in braces stand for what each side gave under them; in the answers each side's own ids are
put back to the names, and times to `<ms>`. What may differ is listed here, and nowhere else.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import httpx

TIMES = frozenset(
    "start_time end_time creation_time last_update_time creation_timestamp last_updated_timestamp "
    "creation_timestamp_ms last_updated_timestamp_ms".split()
)
UNORDERED = frozenset({"metrics", "params", "tags", "dataset_inputs", "model_outputs"})
"""Lists that MLflow gives in whatever order its database has them."""

EXCLUDED: dict[str, str] = {
    "user_id": "theirs is what the client claims, ours is who it is",
    "run_name": "made up by the server where none was given",
    "mlflow.runName": "the same, as a tag",
}
"""Fields, and tags, whose values may differ; that they are there may not."""

MESSAGES: dict[str, str] = {
    r"^Experiment\(name=(.*?)\) already exists\..*": "theirs goes on with SQL",
    r"^Registered Model \(name=(.*?)\) already exists\..*": "theirs goes on with SQL",
    r"^Invalid attribute key '(.*?)' specified\..*": "theirs goes on with a set, in any order",
    r"^Invalid comparator '(.*?)' not one of.*": "the same",
    r"^Invalid entity type '(.*?)'.*": "theirs goes on with the list in another form",
    r"^Invalid clause\(s\) in filter string.*": "what is quoted of the filter is cut elsewhere",
    r"^Invalid comparison clause.*": "an unreadable clause; theirs tells by its parser's tokens",
    r"^Changing param values is not allowed\..*": "how the old values are shown",
    r"^`order_by` contains duplicate fields.*": "how the list is shown",
    r"^Invalid order_by clause.*": "how the clause is shown",
}
"""Beginnings of messages; of what matches, the groups are compared alone."""

SAME_FAULT = {"Invalid comparison clause": "Invalid clause(s) in filter string"}
"""Faults that theirs tells apart and ours does not."""

CLAMPED = {1.7976931348623157e308: "Infinity", -1.7976931348623157e308: "-Infinity"}
"""Theirs makes the largest number of an infinity; ours keeps it."""

STATUSES: dict[tuple[int, int], str] = {
    (500, 400): "theirs answers some of a caller's mistakes with 500; ours never does",
}
HISTORY = ("GET", "/api/2.0/mlflow/metrics/get-history")
"""Of a run that is not there theirs has an empty history; ours says that it is not there."""
"""(theirs, ours)."""


@dataclass
class Side:
    client: httpx.Client
    known: dict[str, str] = field(default_factory=dict)

    def call(self, method: str, path: str, body: Any, query: dict[str, Any] | None) -> Answer:
        answer = self.client.request(
            method, self.fill(path), json=self.fill(body) if body is not None else None,
            params=self.fill(query) if query else None,
        )  # fmt: skip
        kind = answer.headers.get("content-type", "")
        value = answer.json() if kind.startswith("application/json") else answer.text
        return Answer(answer.status_code, value)

    def fill(self, value: Any) -> Any:
        """The names in braces as this side knows them."""
        if isinstance(value, str):
            return re.sub(r"\{(\w+)\}", lambda found: self.known.get(found[1], found[0]), value)
        if isinstance(value, dict):
            return {key: self.fill(each) for key, each in value.items()}
        return [self.fill(each) for each in value] if isinstance(value, list) else value

    def plain(self, value: Any) -> str:
        """A text with this side's ids put back to their names, the longest first."""
        text = str(value)
        for name, given in sorted(self.known.items(), key=lambda each: -len(each[1])):
            # Theirs has short numbers for experiments: those only where an id must stand.
            before = (
                "" if len(given) > 8 else r"(?<=id[= ])|(?<=mlflow-artifacts:/)|(?<=experiment )"
            )
            text = re.sub(rf"(?:{before}){re.escape(given)}(?!\w)", f"<{name}>", text)
        return text

    def named(self, given: str) -> str:
        """The name of an experiment's id."""
        return next((f"<{name}>" for name, known in self.known.items() if known == given), given)


@dataclass
class Answer:
    status: int
    value: Any

    def at(self, path: str) -> str:
        found = self.value
        for word in path.split("."):
            found = found[int(word)] if word.isdigit() else found[word]
        return str(found)


class Pair:
    """Both servers; `checked` has the endpoints that were compared."""

    def __init__(self, real: httpx.Client, ours: httpx.Client) -> None:
        self.real = Side(real)
        self.ours = Side(ours)
        self.checked: set[tuple[str, str]] = set()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: dict[str, Any] | None = None,
        keep: dict[str, str] | None = None,
        status: int | None = None,
    ) -> Answer:
        """Ours, which was like the real one's. `keep`: names for what is found in the answer."""
        if not path.startswith("/"):
            path = "/api/2.0/mlflow/" + path
        theirs = self.real.call(method, path, body, query)
        ours = self.ours.call(method, path, body, query)
        self.checked.add((method, path))
        shown = f"{method} {path} {json.dumps(body)[:300]} {query or ''}"
        if status is not None:
            assert theirs.status == status, f"{shown}\ntheirs: {theirs}"
        for name, place in (keep or {}).items():
            assert theirs.status == 200 == ours.status, f"{shown}\n{theirs}\n{ours}"
            self.real.known[name], self.ours.known[name] = theirs.at(place), ours.at(place)
        if (method, path) == HISTORY and ours.status == 404:
            return ours
        if theirs.status != ours.status:
            assert (theirs.status, ours.status) in STATUSES, f"{shown}\n{theirs}\n{ours}"
            return ours
        wanted, found = normal(theirs.value, self.real), normal(ours.value, self.ours)
        assert found == wanted, f"{shown}\ntheirs: {wanted}\nours:   {found}"
        return ours


def normal(value: Any, side: Side, name: str = "") -> Any:
    """A JSON value without what may differ."""
    if isinstance(value, dict):
        if "error_code" in value:
            return {**value, "message": message(side.plain(value["message"]))}
        tag = value.get("key")
        return {
            key: f"<{tag}>" if key == "value" and tag in EXCLUDED else normal(each, side, key)
            for key, each in value.items()
        }
    if isinstance(value, list):
        items = [normal(each, side, name) for each in value]
        return sorted(items, key=json.dumps) if name in UNORDERED else items
    if name in TIMES:
        return "<ms>"
    if name == "experiment_id":
        return side.named(value)
    if name == "value" and value in CLAMPED:
        return CLAMPED[value]
    if name in EXCLUDED:
        return f"<{name}>"
    return side.plain(value) if isinstance(value, str) else value


def message(text: str) -> str:
    for theirs, ours in SAME_FAULT.items():
        if text.startswith(theirs):
            text = ours
    for pattern in MESSAGES:
        match = re.match(pattern, text, re.DOTALL)
        if match:
            return pattern + " ".join(match.groups())
    return text

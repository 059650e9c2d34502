"""How an importer is chosen, by the shape of what it is given; and the one call: `convert`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from windlass.client import documents
from windlass.client.importers.base import Imported, Importer, show
from windlass.client.importers.determined import Determined
from windlass.client.importers.kubeflow_v1 import KubeflowV1
from windlass.client.importers.sbatch import Sbatch
from windlass.client.importers.trainjob import TrainJob
from windlass.core.errors import InvalidInput
from windlass.core.jobs import FILL_IN, JobSpec

BY_SHAPE: tuple[Importer, ...] = (KubeflowV1(), TrainJob(), Determined())


def convert(text: str, path: str = "the file") -> list[Imported]:
    """Every job of a file, each a valid `JobSpec`. Raises InvalidInput, and nothing else."""
    script = Sbatch(path if path != "-" else "job.sh")
    if script.matches(text):
        return [_checked(script, text, path)]
    found = [one for document in documents.load(text, path) for one in _listed(document)]
    if not found:
        raise InvalidInput(f"{path} is empty", hint=_known())
    jobs = []
    for number, document in enumerate(found, start=1):
        where = f"{path}: document {number}" if len(found) > 1 else path
        jobs.append(_checked(detect(document, where), document, where))
    return jobs


def detect(document: Any, where: str = "the file") -> Importer:
    """The importer for a document, or for the text of a script, by its shape. Raises InvalidInput
    with the known kinds."""
    script = Sbatch()
    if script.matches(document):
        return script
    if not isinstance(document, Mapping):
        raise InvalidInput(f"{where}: not a job: {show(document)}", hint=_known())
    for importer in BY_SHAPE:
        if importer.matches(document):
            return importer
    kind = document.get("kind")
    if kind == "job" or (kind is None and "run" in document):
        raise InvalidInput(f"{where}: a job of windlass already", hint="windlass apply -f FILE")
    found = f"kind {show(kind)}" if kind is not None else f"fields {show(list(document))}"
    raise InvalidInput(f"{where}: {found}: not known here", hint=_known())


def filled(spec: dict[str, Any]) -> dict[str, Any]:
    """As it will be once what was left to fill in is there."""

    def done(fields: Mapping[str, Any]) -> dict[str, Any]:
        words = fields.get("run") or ()
        return {**fields, "run": words[1:] or ["true"]} if words[:1] == [FILL_IN] else {**fields}

    roles = {name: done(role) for name, role in (spec.get("roles") or {}).items()}
    return {**done(spec), **({"roles": roles} if roles else {})}


def _known() -> str:
    return "known: " + "; ".join([*(each.name for each in BY_SHAPE), Sbatch.name])


def _listed(document: Any) -> list[Any]:
    """`kubectl get -o yaml` puts several objects into a List."""
    if isinstance(document, Mapping) and document.get("kind") == "List":
        items = document.get("items")
        return items if isinstance(items, list) else [document]
    return [document]


def _checked(importer: Importer, document: Any, where: str) -> Imported:
    try:
        job = importer.convert(document)
    except InvalidInput as err:
        raise InvalidInput(f"{where}: {err.message}", hint=err.hint) from None
    try:
        JobSpec.model_validate(filled(job.spec))
    except ValidationError as err:
        first = err.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the job"
        raise InvalidInput(
            f"{where}: it would make a job that is not valid: {field}: {first['msg']}"
            f" (found {show(first['input'])})"
        ) from None
    return job

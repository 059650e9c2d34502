"""Models as the API sees them: versions that never change, aliases that move.

The stages of older MLflow scripts
are four aliases that every model has: Staging, Production, Archived, and None for the rest. They
are written with a capital; `production` is an alias like any other.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from windlass.core.modelrefs import MAX_FILES, MAX_NAME, alias_problem, name_problem
from windlass.core.paths import MAX_PATH_BYTES
from windlass.core.reports import Digest
from windlass.core.strict import Count, Line, Strict, Text

MAX_TAG_VALUE = 5000
UNSAFE_SENTENCE = (
    "opening a pickle runs whatever code is in it: load it only if you trust who made it, and "
    "prefer safetensors or ONNX"
)


class Stage(StrEnum):
    NONE = "None"
    STAGING = "Staging"
    PRODUCTION = "Production"
    ARCHIVED = "Archived"


def _checked(problem: Any, kind: str) -> Any:
    def check(value: str) -> str:
        wrong = problem(value)
        if wrong:
            raise PydanticCustomError(kind, wrong)
        return value

    return check


ModelName = Annotated[
    str, Field(max_length=MAX_NAME), AfterValidator(_checked(name_problem, "model_name"))
]
AliasName = Annotated[
    str, Field(max_length=255), AfterValidator(_checked(alias_problem, "alias_name"))
]
Tags = Annotated[
    dict[Annotated[Line, Field(min_length=1, max_length=250)],
         Annotated[Text, Field(max_length=MAX_TAG_VALUE)]],
    Field(max_length=100),
]  # fmt: skip


class ModelFile(Strict):
    path: Annotated[Line, Field(min_length=1, max_length=MAX_PATH_BYTES)]
    digest: Digest
    size: Count


class RegisterBody(Strict):
    """Either `files`, whose blobs are here, or a `run` (or job) with a `path` in its artefacts."""

    files: Annotated[tuple[ModelFile, ...], Field(max_length=MAX_FILES)] = ()
    run: Annotated[Line, Field(max_length=64)] = ""
    path: Annotated[Line, Field(max_length=MAX_PATH_BYTES)] = ""
    description: Annotated[Text, Field(max_length=20_000)] = ""
    tags: Tags = {}
    aliases: Annotated[tuple[AliasName, ...], Field(max_length=20)] = ()


class AliasBody(Strict):
    version: Annotated[int, Field(ge=1, le=2**31 - 1)]


class VersionView(Strict):
    model: str
    version: int
    digest: str
    format: str
    unsafe: tuple[str, ...]
    """Files that run code when they are opened."""
    files: int
    bytes: Count
    stage: Stage
    aliases: tuple[str, ...]
    run: str | None
    job: str | None
    user: str
    created: str
    description: str = ""
    tags: dict[str, str] = {}


class VersionDetail(VersionView):
    listed: tuple[ModelFile, ...]
    source: str
    lineage: dict[str, Any]
    """Job, run, data and code that it came from, as they were when it was registered."""
    warning: str = ""


class MoveView(Strict):
    """An alias went from one version to another. None: it was at none."""

    alias: str
    before: int | None
    after: int | None
    user: str
    at: str


class ModelView(Strict):
    name: str
    versions: int
    newest: int | None
    aliases: dict[str, int]
    user: str
    created: str
    changed: str
    description: str = ""
    tags: dict[str, str] = {}


class ModelDetail(ModelView):
    listed: tuple[VersionView, ...]
    """Newest first."""
    moves: tuple[MoveView, ...]
    """Newest first, at most 1000."""


class ModelPage(Strict):
    items: tuple[ModelView, ...]

"""Rows of models and versions as the API shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.core.models import (
    UNSAFE_SENTENCE,
    ModelDetail,
    ModelFile,
    ModelView,
    MoveView,
    Stage,
    VersionDetail,
    VersionView,
)
from windlass.server.clock import stamp

Row = Mapping[str, Any]


def model_view(row: Row, aliases: Mapping[str, int]) -> ModelView:
    return ModelView(**_model(row, aliases))


def model_detail(
    row: Row, versions: Sequence[Row], aliases: Mapping[str, int], moves: tuple[MoveView, ...]
) -> ModelDetail:
    name = row["name"]
    listed = tuple(version_view(name, version, aliases) for version in versions)
    counted = {
        **row, "versions": len(versions), "newest": versions[0]["number"] if versions else None
    }  # fmt: skip
    staged: dict[str, int] = {}
    for version in versions:  # newest first: the one that a stage's name means
        if version["stage"] != Stage.NONE:
            staged.setdefault(version["stage"], version["number"])
    return ModelDetail(**_model(counted, {**aliases, **staged}), listed=listed, moves=moves)


def version_view(name: str, row: Row, aliases: Mapping[str, int]) -> VersionView:
    return VersionView(**_version(name, row, aliases))


def version_detail(name: str, row: Row, aliases: Mapping[str, int]) -> VersionDetail:
    return VersionDetail(
        **_version(name, row, aliases),
        listed=tuple(ModelFile(**file) for file in row["files"]),
        source=row["source"],
        lineage=row["lineage"],
        warning=f"unsafe: pickle ({UNSAFE_SENTENCE})" if row["unsafe"] else "",
    )


def _model(row: Row, aliases: Mapping[str, int]) -> dict[str, Any]:
    return {
        "name": row["name"], "versions": row["versions"], "newest": row["newest"],
        "aliases": dict(aliases), "user": row["user_name"], "created": stamp(row["created_ms"]),
        "changed": stamp(row["changed_ms"]), "description": row["description"],
        "tags": row["tags"],
    }  # fmt: skip


def _version(name: str, row: Row, aliases: Mapping[str, int]) -> dict[str, Any]:
    mine = tuple(alias for alias, number in aliases.items() if number == row["number"])
    return {
        "model": name, "version": row["number"], "digest": row["digest"],
        "format": row["format"], "unsafe": tuple(row["unsafe"]), "files": len(row["files"]),
        "bytes": row["bytes"], "stage": Stage(row["stage"]), "aliases": mine,
        "run": row["run_id"], "job": row["job_id"], "user": row["user_name"],
        "created": stamp(row["created_ms"]), "description": row["description"],
        "tags": row["tags"],
    }  # fmt: skip

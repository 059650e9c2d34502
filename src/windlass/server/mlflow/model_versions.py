"""MLflow's model versions, over our own: made of artifacts of the same project, never of an
address, and never changed afterwards."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from windlass.core.models import Stage
from windlass.server.mlflow import registry_search as searching
from windlass.server.mlflow import registry_words as words
from windlass.server.mlflow import sources
from windlass.server.mlflow.asked import Asked
from windlass.server.mlflow.errors import MlflowError, of_type
from windlass.server.models import service, versions
from windlass.server.models.sources import describe

Answer = dict[str, Any]


async def create(asked: Asked) -> Answer:
    fields = await asked.json()
    given = {
        name: words.text(fields, name)
        for name in ("run_id", "run_link", "description", "model_id")
    }
    name = words.text(fields, "name", required=True)
    source = words.text(fields, "source", required=True)
    words.model_name({"name": name})
    tags = words.tags_of(fields)
    found = await sources.find(asked, source, given["run_id"], given["model_id"])
    described = await describe(asked.parts, asked.project_id, found.files)
    now = asked.now_ms

    def write(conn: Connection) -> Answer:
        actor = service.actor_of(conn, asked.who)
        model = words.find_model(conn, asked, name, change=True)
        row = versions.register(
            conn, actor, model, found.files, found.origin(given["run_link"]), described, now,
            description=given["description"], tags=tags,
        )  # fmt: skip
        about = f"{name}@{row['number']}"
        words.told(conn, asked, "models.register", about, digest=row["digest"])
        return {"model_version": words.version_wire(name, row)}

    answer = await asked.parts.store.write(write)
    if found.logged_id:
        await sources.note_version(
            asked, found.logged_id, name, int(answer["model_version"]["version"])
        )
    return answer


async def get(asked: Asked) -> Answer:
    fields = await asked.fields()
    name, number = words.model_name(fields), words.version_number(fields)

    def look(conn: Connection) -> Answer:
        _, row = words.find_version(conn, asked, name, number)
        return _wire(conn, name, row)

    return await asked.parts.store.read(look)


async def update(asked: Asked) -> Answer:
    fields = await asked.json()
    name, number = words.model_name(fields), words.version_number(fields)
    description, now = words.text(fields, "description"), asked.now_ms

    def write(conn: Connection) -> Answer:
        _, row = words.find_version(conn, asked, name, number, change=True)
        versions.change(conn, row, now, description=description)
        words.told(conn, asked, "models.change", f"{name}@{number}", fields=["description"])
        return _wire(conn, name, {**row, "description": description, "changed_ms": now})

    return await asked.parts.store.write(write)


async def delete(asked: Asked) -> Answer:
    fields = await asked.fields()
    name, number = words.model_name(fields), words.version_number(fields)
    now = asked.now_ms

    def write(conn: Connection) -> Answer:
        actor = service.actor_of(conn, asked.who)
        model, row = words.find_version(conn, asked, name, number, change=True)
        versions.remove(conn, actor, model, row, now)
        words.told(conn, asked, "models.remove-version", f"{name}@{number}")
        return {}

    return await asked.parts.store.write(write)


async def search(asked: Asked) -> Answer:
    fields = await asked.fields("order_by")
    wish = searching.Wish.of(fields, most=200_000, default=10_000)

    def look(conn: Connection) -> Answer:
        page, token = searching.versions(conn, asked.project_id, wish)
        wires = [words.version_wire(row["name"], row) for row in page]
        return searching.answer("model_versions", wires, token)

    return await asked.parts.store.read(look)


async def download_uri(asked: Asked) -> Answer:
    """Where the files of this version lie for ever, not where they were copied from."""
    fields = await asked.fields()
    name, number = words.model_name(fields), words.version_number(fields)

    def look(conn: Connection) -> Answer:
        model, _ = words.find_version(conn, asked, name, number)
        return {"artifact_uri": sources.registry_uri(model["id"], number)}

    return await asked.parts.store.read(look)


async def transition(asked: Asked) -> Answer:
    fields = await asked.json()
    name, number = words.model_name(fields), words.version_number(fields)
    word = words.text(fields, "stage", required=True)
    archive = fields.get("archive_existing_versions") or False
    if not isinstance(archive, bool):
        raise of_type("archive_existing_versions", archive)
    stage, now = words.stage_of(word), asked.now_ms
    if archive and stage not in (Stage.STAGING, Stage.PRODUCTION):
        raise MlflowError(
            "INTERNAL_ERROR",
            "Model version transition cannot archive existing model versions because "
            f"'{word}' is not an Active stage. Valid stages are ['Staging', 'Production']",
            status=400,
        )

    def write(conn: Connection) -> Answer:
        actor = service.actor_of(conn, asked.who)
        model, row = words.find_version(conn, asked, name, number, change=True)
        versions.stage(conn, actor, model, row, stage, now, archive=archive)
        words.told(conn, asked, "models.move", f"{name}@{stage}", version=number)
        return _wire(conn, name, {**row, "stage": stage.value, "changed_ms": now})

    return await asked.parts.store.write(write)


async def set_tag(asked: Asked) -> Answer:
    fields = await asked.json()
    name, number = words.model_name(fields), words.version_number(fields)
    key = words.tag_key(fields)
    return await _tag(asked, name, number, key, words.tag_value(fields))


async def delete_tag(asked: Asked) -> Answer:
    fields = await asked.fields()
    name, number = words.model_name(fields), words.version_number(fields)
    return await _tag(asked, name, number, words.tag_key(fields), None)


async def _tag(asked: Asked, name: str, number: int, key: str, value: str | None) -> Answer:
    now = asked.now_ms

    def write(conn: Connection) -> Answer:
        _, row = words.find_version(conn, asked, name, number, change=True)
        tags = {each: text for each, text in row["tags"].items() if each != key}
        if value is not None:
            tags[key] = value
        versions.change(conn, row, now, tags=tags)
        words.told(conn, asked, "models.change", f"{name}@{number}", tag=key)
        return {}

    return await asked.parts.store.write(write)


def _wire(conn: Connection, name: str, row: words.Row) -> Answer:
    wire = words.version_wire(name, row, versions.aliases_at(conn, row))
    return {"model_version": wire}

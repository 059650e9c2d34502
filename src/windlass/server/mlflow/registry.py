"""MLflow's registered models and their aliases, over our own registry."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from windlass.core.errors import Conflict, NotFound
from windlass.core.models import Stage
from windlass.server.mlflow import registry_search as searching
from windlass.server.mlflow import registry_words as words
from windlass.server.mlflow.asked import Asked
from windlass.server.mlflow.errors import absent, invalid, of_type
from windlass.server.models import aliases, service, versions

Answer = dict[str, Any]


async def create(asked: Asked) -> Answer:
    fields = await asked.json()
    name = words.model_name(fields)
    description, tags = words.text(fields, "description"), words.tags_of(fields)
    now = asked.now_ms

    def write(conn: Connection) -> Answer:
        actor = service.actor_of(conn, asked.who)
        try:
            row = service.make(conn, actor, name, now, description=description, tags=tags)
        except Conflict:
            raise words.taken(name) from None
        words.told(conn, asked, "models.create", name)
        return {"registered_model": words.model_wire(row, (), {})}

    return await asked.parts.store.write(write)


async def get(asked: Asked) -> Answer:
    name = words.model_name(await asked.fields())

    def look(conn: Connection) -> Answer:
        return {"registered_model": _whole(conn, words.find_model(conn, asked, name))}

    return await asked.parts.store.read(look)


async def update(asked: Asked) -> Answer:
    fields = await asked.json()
    name, description = words.model_name(fields), words.text(fields, "description")
    return await _change(asked, name, description=description)


async def rename(asked: Asked) -> Answer:
    fields = await asked.json()
    name = words.model_name(fields)
    fresh = words.model_name(fields, "new_name")
    try:
        return await _change(asked, name, name=fresh)
    except Conflict:
        raise words.taken(fresh) from None


async def _change(asked: Asked, model: str, **values: Any) -> Answer:
    now = asked.now_ms

    def write(conn: Connection) -> Answer:
        row = words.find_model(conn, asked, model, change=True)
        service.change(conn, row, now, **values)
        words.told(conn, asked, "models.change", model, fields=sorted(values))
        return {"registered_model": _whole(conn, {**row, **values, "changed_ms": now})}

    return await asked.parts.store.write(write)


async def delete(asked: Asked) -> Answer:
    name = words.model_name(await asked.fields())

    def write(conn: Connection) -> Answer:
        words.find_model(conn, asked, name)
        words.told(conn, asked, "models.remove", name)
        service.remove(conn, service.actor_of(conn, asked.who), name, asked.now_ms)
        return {}

    return await asked.parts.store.write(write)


async def search(asked: Asked) -> Answer:
    fields = await asked.fields("order_by")
    wish = searching.Wish.of(fields, most=1000, default=100)

    def look(conn: Connection) -> Answer:
        page, token = searching.models(conn, asked.project_id, wish)
        wires = [_whole(conn, row) for row in page]
        return searching.answer("registered_models", wires, token)

    return await asked.parts.store.read(look)


async def latest_versions(asked: Asked) -> Answer:
    fields = await asked.fields("stages")
    name = words.model_name(fields)
    stages = fields.get("stages") or []
    if not isinstance(stages, list) or not all(isinstance(stage, str) for stage in stages):
        raise of_type("stages", stages)

    def look(conn: Connection) -> Answer:
        model = words.find_model(conn, asked, name)
        wanted = {words.stage_of(stage) for stage in stages or Stage}
        found = [
            row
            for row in words.latest_of(versions.of_model(conn, model["id"]))
            if row["stage"] in wanted
        ]
        wires = [words.version_wire(name, row, versions.aliases_at(conn, row)) for row in found]
        return {"model_versions": wires} if wires else {}

    return await asked.parts.store.read(look)


async def set_tag(asked: Asked) -> Answer:
    fields = await asked.json()
    name, key, value = words.model_name(fields), words.tag_key(fields), words.tag_value(fields)
    return await _tag(asked, name, key, value)


async def delete_tag(asked: Asked) -> Answer:
    fields = await asked.fields()
    return await _tag(asked, words.model_name(fields), words.tag_key(fields), None)


async def _tag(asked: Asked, name: str, key: str, value: str | None) -> Answer:
    now = asked.now_ms

    def write(conn: Connection) -> Answer:
        row = words.find_model(conn, asked, name, change=True)
        tags = {each: text for each, text in row["tags"].items() if each != key}
        if value is not None:
            tags[key] = value
        service.change(conn, row, now, tags=tags)
        words.told(conn, asked, "models.change", name, tag=key)
        return {}

    return await asked.parts.store.write(write)


async def set_alias(asked: Asked) -> Answer:
    fields = await asked.json()
    name, alias = words.model_name(fields), words.alias_name(fields, fresh=True)
    number, now = words.version_number(fields), asked.now_ms

    def write(conn: Connection) -> Answer:
        actor = service.actor_of(conn, asked.who)
        model, row = words.find_version(conn, asked, name, number, change=True)
        if alias in service.STAGES:
            versions.stage(conn, actor, model, row, Stage(alias), now, archive=True)
        else:
            aliases.move(conn, actor, model, alias, number, now)
        words.told(conn, asked, "models.move", f"{name}@{alias}", version=number)
        return {}

    return await asked.parts.store.write(write)


async def delete_alias(asked: Asked) -> Answer:
    fields = await asked.fields()
    name, alias = words.model_name(fields), words.alias_name(fields)
    now = asked.now_ms

    def write(conn: Connection) -> Answer:
        actor = service.actor_of(conn, asked.who)
        model = words.find_model(conn, asked, name, change=True)
        if aliases.holder(conn, model, alias) is not None:
            aliases.drop(conn, actor, model, alias, now)
        words.told(conn, asked, "models.drop", f"{name}@{alias}")
        return {}

    return await asked.parts.store.write(write)


async def get_by_alias(asked: Asked) -> Answer:
    fields = await asked.fields()
    name, alias = words.model_name(fields), words.alias_name(fields)

    def look(conn: Connection) -> Answer:
        model = words.find_model(conn, asked, name)
        latest = alias.lower() == "latest"
        try:
            row = service.find_version(conn, model, "" if latest else alias)
        except NotFound:
            if latest:
                raise absent(f"Latest version not found for model {name}.") from None
            raise invalid(f"Registered model alias {alias} not found.") from None
        wire = words.version_wire(name, row, versions.aliases_at(conn, row))
        return {"model_version": wire}

    return await asked.parts.store.read(look)


def _whole(conn: Connection, row: words.Row) -> words.Row:
    latest = words.latest_of(versions.of_model(conn, row["id"]))
    held = service.aliases_of(conn, [row["id"]]).get(row["id"], {})
    return words.model_wire(row, latest, held)

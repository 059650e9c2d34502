"""Searches in the registry, page by page, alike in both databases."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import insert

from windlass.server.mlflow import registry_search as searching
from windlass.server.mlflow.errors import MlflowError
from windlass.server.models.tables import model_versions, models

NAMES = ["a", "B", "b", "net-1", "net_2", "Net%3", "ä", "zz'\"q"]


@pytest.fixture
def filled(tenancy: Any) -> Any:
    project = tenancy.who.project_id

    def make(conn: Any) -> None:
        for at, name in enumerate(NAMES):
            tags = {"team": "red" if at % 2 else "blue", 'odd "key': name}
            row = {
                "id": f"{at:032x}", "project_id": project, "name": name, "tags": tags,
                "user_id": tenancy.who.user_id, "user_name": "x", "last": 2,
                "created_ms": at // 2, "changed_ms": 100 - at,
            }  # fmt: skip
            conn.execute(insert(models).values(row))
            for number in (1, 2):
                conn.execute(
                    insert(model_versions).values(
                        model_id=row["id"], number=number, project_id=project, digest="d" * 64,
                        files=[], bytes=0, format="x", user_id=row["user_id"], user_name="x",
                        created_ms=at, changed_ms=50, run_id=f"run{at}" if number == 2 else None,
                        tags={"mlflow.prompt.is_prompt": "true"} if at == 0 else {},
                    )
                )  # fmt: skip

    tenancy.write(make)
    return tenancy


def found(filled: Any, what: Any = searching.models, **fields: Any) -> tuple[list[Any], str]:
    wish = searching.Wish.of(fields, most=1000, default=100)
    rows, token = filled.read(lambda conn: what(conn, filled.who.project_id, wish))
    return [
        row["name"] if what is searching.models else (row["name"], row["number"]) for row in rows
    ], token


def test_all_come_in_the_order_of_their_code_points(filled: Any) -> None:
    assert found(filled) == (sorted(NAMES), "")
    names, _ = found(filled, order_by=["creation_timestamp DESC", "name DESC"])
    at = {name: place for place, name in enumerate(NAMES)}
    by = sorted(sorted(NAMES, reverse=True), key=lambda name: -(at[name] // 2))
    assert names == by


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("name LIKE 'net%'", ["net-1", "net_2"]),
        ("name ILIKE 'NET_2'", ["net_2"]),
        ("name ILIKE 'net%'", ["Net%3", "net-1", "net_2"]),
        ("name LIKE 'net_1'", ["net-1"]),
        ("name != 'a' and name LIKE '_'", ["B", "b", "ä"]),
        ("tags.team = 'red' and name LIKE '%_2'", []),
        ("tags.team = 'red'", ["B", "Net%3", "net-1", "zz'\"q"]),
        ("tags.team != 'red'", ["a", "b", "net_2", "ä"]),
        ("tags.nothing != 'red'", []),
        ("tags.nothing = 'x'", []),
        ("tags.`mlflow.prompt.is_prompt` = 'false' and name = 'a'", ["a"]),
        ("tags.`mlflow.prompt.is_prompt` != 'true' and name = 'a'", ["a"]),
        ("tags.`mlflow.prompt.is_prompt` = 'true'", []),
        ("name IN ('a', 'b', 'q')", ["a", "b"]),
    ],
)
def test_filters_hold(filled: Any, words: str, wanted: list[str]) -> None:
    assert found(filled, filter=words)[0] == wanted


def test_versions_by_run_number_and_tag(filled: Any) -> None:
    assert found(filled, searching.versions, filter="run_id = 'run3'")[0] == [("net-1", 2)]
    assert found(filled, searching.versions, filter="version_number = 1 and name = 'b'")[0] == [
        ("b", 1)
    ]
    prompts = "tags.`mlflow.prompt.is_prompt` = 'true'"
    assert found(filled, searching.versions, filter=prompts)[0] == [("a", 2), ("a", 1)]
    everything = found(filled, searching.versions)[0]
    assert everything == [(name, number) for name in sorted(NAMES) for number in (2, 1)]


def test_pages_follow_one_another_and_each_has_no_more_than_was_asked_for(filled: Any) -> None:
    seen: list[str] = []
    token = ""
    while True:
        rows, token = found(filled, max_results=3, page_token=token)
        assert len(rows) <= 3
        seen += rows
        if not token:
            break
    assert seen == sorted(NAMES)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"filter": "tags.team > 'a'"}, "Invalid comparator for tag"),
        ({"filter": "colour = 'a'"}, "Invalid attribute key 'colour'"),
        ({"filter": "metrics.a = 'a'"}, "Invalid entity type 'metrics'"),
        ({"order_by": ["size"]}, "Invalid order by key 'size'"),
        ({"max_results": 0}, "must be a positive integer"),
    ],
)
def test_what_is_no_search_is_refused_though_nothing_is_there(
    tenancy: Any, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(MlflowError, match=words):
        found(tenancy, **fields)

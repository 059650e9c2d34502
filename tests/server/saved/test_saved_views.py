"""Views under a name: one's own, in one project, and nobody else's."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from windlass.testing.people import Caller, People
from windlass.testing.platform import Platform
from windlass.testing.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgresql"])
def people(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[People]:
    url = ""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.fresh()
    with Platform(tmp_path_factory.mktemp("saved") / "home", database=url) as platform:
        yield People(platform)
    if url:
        server.drop(url)


def names(caller: Caller, query: str = "") -> list[tuple[str, str, str]]:
    items = caller.ok("GET", f"/views{query}")["items"]
    return [(each["page"], each["name"], each["search"]) for each in items]


def test_they_are_kept_changed_and_forgotten_by_their_owner_alone(people: People) -> None:
    people.project("red")
    people.project("blue")
    ann = people.user("ann", project="red", role="member")
    bob = people.user("bob", project="red", role="member")
    look = people.user("eve", project="red", role="viewer")
    best = f"/views/jobs/{quote('best of ümlaut & 中文')}"
    assert ann.ok("PUT", best, {"search": "filter=state%3Dfailed"})["changed"]
    ann.ok("PUT", "/views/compare/mine", {"search": ""})
    ann.ok("PUT", best, {"search": "sort=-metrics.loss"})
    assert names(ann) == [
        ("compare", "mine", ""), ("jobs", "best of ümlaut & 中文", "sort=-metrics.loss"),
    ]  # fmt: skip
    assert names(ann, "?page=compare") == [("compare", "mine", "")]
    assert names(bob) == [] and names(look) == []
    people.owner.ok("PUT", "/projects/blue/members/ann", {"role": "member"})
    assert names(ann.inside("blue")) == []
    assert bob.code("DELETE", best) == 404
    assert look.code("PUT", best, {"search": ""}) == 403
    assert ann.code("DELETE", best) == 204 and ann.code("DELETE", best) == 404
    assert names(ann) == [("compare", "mine", "")]
    people.owner.ok("DELETE", "/users/ann", {"stop_jobs": False})


def test_what_cannot_be_kept_is_named(people: People) -> None:
    owner = people.owner
    for path, body, word in (
        ("/views/Jobs/x", {"search": ""}, "page"),
        (f"/views/jobs/{'x' * 81}", {"search": ""}, "name"),
        ("/views/jobs/x", {"search": "a" * 4097}, "search"),
        ("/views/jobs/x", {}, "search"),
    ):
        answer = owner.call("PUT", path, body)
        assert answer.status_code == 422 and word in answer.json()["error"]["message"], answer.text

"""Models in both databases: versions that never change, aliases whose history has no gap."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import Connection

from windlass.core.errors import Conflict, Forbidden, InvalidInput, NotFound
from windlass.core.modelrefs import digest_of, parse_ref
from windlass.core.models import Stage
from windlass.server import feed
from windlass.server.artifacts import service as artifacts
from windlass.server.artifacts.service import File
from windlass.server.bundles import references
from windlass.server.models import aliases, service, versions
from windlass.server.models.service import Actor
from windlass.server.models.versions import Described, Origin

WEIGHTS = File("weights.safetensors", "a" * 64, 10)
OTHER = File("other.onnx", "b" * 64, 20)


class Registry:
    def __init__(self, tenancy: Any) -> None:
        self.tenancy = tenancy
        who = tenancy.who
        self.ann = Actor(who.project_id, who.user_id, "ann")
        self.project = who.project_id
        self.now = 1_000

    def register(self, name: str, *files: File, actor: Actor | None = None) -> int:
        self.now += 1
        now, who = self.now, actor or self.ann

        def write(conn: Connection) -> int:
            model = service.make(conn, who, name, now, known=True)
            made = versions.register(
                conn, who, model, files or (WEIGHTS,), Origin(), Described("safetensors", ()), now
            )
            return int(made["number"])

        return int(self.tenancy.write(write))

    def move(self, name: str, alias: str, number: int) -> None:
        self.now += 1
        now = self.now

        def write(conn: Connection) -> None:
            model = service.find(conn, self.project, name, change=True)
            aliases.move(conn, self.ann, model, alias, number, now)

        self.tenancy.write(write)

    def stage(self, name: str, number: int, to: Stage, archive: bool = True) -> None:
        self.now += 1
        now = self.now

        def write(conn: Connection) -> None:
            model = service.find(conn, self.project, name, change=True)
            row = service.find_version(conn, model, str(number))
            versions.stage(conn, self.ann, model, row, to, now, archive=archive)

        self.tenancy.write(write)

    def resolve(self, ref: str) -> service.Version:
        found: service.Version = self.tenancy.read(
            lambda conn: service.resolve(conn, self.project, ref)
        )
        return found

    def moves(self, name: str) -> Sequence[tuple[str, int | None, int | None]]:
        def look(conn: Connection) -> Any:
            return aliases.history(conn, service.find(conn, self.project, name)["id"])

        return [(move.alias, move.before, move.after) for move in self.tenancy.read(look)]


@pytest.fixture
def registry(tenancy: Any) -> Registry:
    return Registry(tenancy)


def test_a_version_is_named_by_number_alias_stage_or_as_the_newest(registry: Registry) -> None:
    assert [registry.register("digits", file) for file in (WEIGHTS, OTHER)] == [1, 2]
    registry.move("digits", "champion", 1)
    registry.stage("digits", 1, Stage.PRODUCTION)
    for ref in ("digits@champion", "digits@1", "digits@Production"):
        found = registry.resolve(ref)
        assert (found.version, found.files) == (1, (WEIGHTS,))
    assert registry.resolve("digits").version == registry.resolve("digits@latest").version == 2
    for ref in ("digits@3", "digits@nobody", "digits@Staging", "letters"):
        with pytest.raises(NotFound):
            registry.resolve(ref)
    for ref in ("", "@x", "a/b@1", "digits@", "..@1"):
        with pytest.raises(InvalidInput):
            registry.resolve(ref)


def test_the_digest_of_a_version_is_that_of_its_list_of_files(registry: Registry) -> None:
    registry.register("one", WEIGHTS, OTHER)
    registry.register("two", OTHER, WEIGHTS)
    one, two = registry.resolve("one"), registry.resolve("two")
    assert one.digest == two.digest
    assert one.digest == digest_of((f.path, f.digest, f.size) for f in (OTHER, WEIGHTS))
    renamed = digest_of([("x", WEIGHTS.digest, 10), (OTHER.path, OTHER.digest, 20)])
    assert renamed != one.digest


def test_who_moved_which_alias_is_kept_also_when_it_is_taken_away(registry: Registry) -> None:
    for _ in range(2):
        registry.register("digits")
    registry.move("digits", "champion", 1)
    registry.move("digits", "champion", 1)  # it stays: no move
    registry.move("digits", "champion", 2)
    registry.stage("digits", 1, Stage.PRODUCTION)
    registry.stage("digits", 2, Stage.PRODUCTION)
    registry.tenancy.write(_removing(registry, "digits", 2))
    assert list(reversed(registry.moves("digits"))) == [
        ("champion", None, 1), ("champion", 1, 2), ("Production", None, 1),
        ("Production", 1, None), ("Archived", None, 1), ("Production", None, 2),
        ("champion", 2, None), ("Production", 2, None),
    ]  # fmt: skip


def _removing(registry: Registry, name: str, number: int) -> Any:
    def write(conn: Connection) -> None:
        model = service.find(conn, registry.project, name, change=True)
        row = service.find_version(conn, model, str(number))
        versions.remove(conn, registry.ann, model, row, registry.now + 1)

    return write


def test_a_number_is_never_given_again(registry: Registry) -> None:
    assert [registry.register("digits") for _ in range(2)] == [1, 2]
    registry.tenancy.write(_removing(registry, "digits", 2))
    assert registry.register("digits") == 3


def test_aliases_moved_at_once_leave_a_whole_history(registry: Registry) -> None:
    for _ in range(4):
        registry.register("digits")

    def moving(number: int) -> Any:
        def write(conn: Connection) -> None:
            model = service.find(conn, registry.project, "digits", change=True)
            aliases.move(conn, registry.ann, model, "champion", number, 5_000)

        return write

    async def all_at_once() -> None:
        store = registry.tenancy.store
        await asyncio.gather(*(store.write(moving(1 + turn % 4)) for turn in range(24)))

    asyncio.run(all_at_once())
    told = list(reversed(registry.moves("digits")))
    befores = [before for _, before, _ in told]
    afters = [after for _, _, after in told]
    assert befores == [None, *afters[:-1]], "each move begins where the one before ended"
    assert afters[-1] == registry.resolve("digits@champion").version


def test_versions_registered_at_once_get_numbers_of_their_own(registry: Registry) -> None:
    def write(conn: Connection) -> int:
        model = service.make(conn, registry.ann, "digits", 7, known=True)
        described = Described("onnx", ())
        made = versions.register(conn, registry.ann, model, (WEIGHTS,), Origin(), described, 7)
        return int(made["number"])

    async def all_at_once() -> list[int]:
        return await asyncio.gather(*(registry.tenancy.store.write(write) for _ in range(12)))

    assert sorted(asyncio.run(all_at_once())) == list(range(1, 13))


def test_another_project_has_models_of_its_own(registry: Registry) -> None:
    registry.register("digits")
    elsewhere = Actor("0" * 32, registry.ann.user_id, "bob")
    assert registry.register("digits", OTHER, actor=elsewhere) == 1
    assert registry.resolve("digits").files == (WEIGHTS,)
    found = registry.tenancy.read(lambda conn: service.every(conn, registry.project))
    assert [row["name"] for row in found] == ["digits"]
    assert found[0]["versions"] == 1


def test_a_member_removes_its_own_models_and_no_others(registry: Registry) -> None:
    registry.register("digits")
    bob = Actor(registry.project, "b" * 32, "bob")
    with pytest.raises(Forbidden):
        registry.tenancy.write(lambda conn: service.remove(conn, bob, "digits", 9))
    registry.register("digits", actor=bob)
    with pytest.raises(Forbidden):  # a version of it is another's
        registry.tenancy.write(lambda conn: service.remove(conn, registry.ann, "digits", 9))
    chief = Actor(registry.project, "c" * 32, "chief", removes_any=True)
    registry.tenancy.write(lambda conn: service.remove(conn, chief, "digits", 9))
    with pytest.raises(NotFound):
        registry.resolve("digits")


def test_who_follows_the_project_hears_of_every_change(registry: Registry) -> None:
    def heard() -> list[tuple[str, str]]:
        registry.tenancy.write(feed.sequence)
        rows = registry.tenancy.read(lambda conn: feed.after(conn, 0, project_id=registry.project))
        return [(row.reason, row.data["name"]) for row in rows if row.kind == "model"]

    registry.register("digits")
    assert heard() == [("model digits was made", "digits"), ("model digits changed", "digits")]
    registry.move("digits", "champion", 1)
    assert len(heard()) == 3
    registry.tenancy.write(lambda conn: service.remove(conn, registry.ann, "digits", 9))
    assert heard()[-1] == ("model digits was removed", "digits")


def test_a_name_is_taken_once(registry: Registry) -> None:
    registry.register("digits")
    registry.register("letters")

    def make(conn: Connection) -> None:
        service.make(conn, registry.ann, "digits", 9)

    def rename(conn: Connection) -> None:
        service.change(conn, service.find(conn, registry.project, "letters"), 9, name="digits")

    for write in (make, rename):
        with pytest.raises(Conflict):
            registry.tenancy.write(write)


def test_blobs_of_versions_and_artefacts_are_wanted(registry: Registry) -> None:
    registry.register("digits")
    file = File("logs/out.txt", "c" * 64, 3)
    registry.tenancy.write(
        lambda conn: artifacts.record(conn, registry.project, "d" * 32, file, 1)
    )
    found = registry.tenancy.read(references.wanted)
    assert found == {registry.project: {WEIGHTS.digest, file.digest}}


@pytest.mark.parametrize(
    ("ref", "parts"),
    [("a", ("a", "")), ("a@3", ("a", "3")), ("my model@best-1", ("my model", "best-1"))],
)
def test_a_reference_has_a_name_and_what_it_names(ref: str, parts: tuple[str, str]) -> None:
    assert parse_ref(ref) == parts

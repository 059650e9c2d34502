"""Engines are found by name, ours through the same door as others'."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.core.errors import InvalidInput
from windlass.engines import registry
from windlass.engines.local.engine import LocalEngine


def test_ours_are_there() -> None:
    assert registry.load("local") is LocalEngine
    for name in registry.BUILT_IN:
        assert name in registry.known()


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="'slrum'") as caught:
        registry.load("slrum")
    assert "local" in caught.value.hint


def test_an_installed_package_adds_one_and_cannot_take_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_engine.py").write_text("class Theirs: ...\n")
    metadata = tmp_path / "theirs-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[windlass.engines]\ntheirs = their_engine:Theirs\nlocal = their_engine:Theirs\n"
        "broken = their_engine:Missing\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert {"theirs", "local"} <= set(registry.known())
    assert registry.load("theirs").__name__ == "Theirs"
    assert registry.load("local") is LocalEngine
    with pytest.raises(InvalidInput, match="their_engine:Missing"):
        registry.load("broken")

"""Code by content: what travels, what does not, what is read again."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from windlass.client import bundle as bundles
from windlass.client.bundle import scan
from windlass.client.ignore import ignored, rules
from windlass.core.errors import InvalidInput, TooLarge


@pytest.fixture
def project(home: Path) -> Path:
    return Path.cwd()


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def paths(root: Path) -> list[str]:
    return [file.path for file in scan(root).files]


def test_the_digest_is_that_of_the_canonical_manifest(project: Path) -> None:
    write(project, {"b.py": "b", "a/ä.py": "a"})
    os.chmod(project / "b.py", 0o700)
    files = [
        {"path": "a/ä.py", "digest": hashlib.sha256(b"a").hexdigest(), "size": 1, "mode": 0o644},
        {"path": "b.py", "digest": hashlib.sha256(b"b").hexdigest(), "size": 1, "mode": 0o755},
    ]
    text = json.dumps(files, sort_keys=True, separators=(",", ":"))
    found = scan(project)
    assert found.manifest == files
    assert found.digest == hashlib.sha256(text.encode()).hexdigest()


def test_ignore_files_and_what_is_never_code_are_left_out(project: Path) -> None:
    write(
        project,
        {
            "train.py": "", ".git/config": "", "__pycache__/a.pyc": "", "windlass-runs/x": "",
            "node_modules/m.js": "", "data/big.bin": "", "notes.tmp": "", "keep.tmp": "",
            "sub/.gitignore": "secret*\n", "sub/secret.txt": "", "sub/ok.py": "",
            ".gitignore": "data/\n*.tmp\n!keep.tmp\n", ".windlassignore": "/only-root\n",
            "only-root": "", "sub/only-root": "",
        },
    )  # fmt: skip
    assert paths(project) == [
        ".gitignore", ".windlassignore", "keep.tmp", "sub/.gitignore", "sub/ok.py",
        "sub/only-root", "train.py",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "path", "directory", "expected"),
    [
        ("*.pt", "a/b/x.pt", False, True),
        ("/x", "a/x", False, False),
        ("a/b", "a/b", False, True),
        ("a/b", "c/a/b", False, False),
        ("a/**/b", "a/x/y/b", False, True),
        ("a/**/b", "a/b", False, True),
        ("**/b", "x/b", False, True),
        ("a/**", "a/x/y", False, True),
        ("d/", "d", False, False),
        ("d/", "d", True, True),
        ("x?z", "xyz", False, True),
        ("[ab].c", "a.c", False, True),
        ("[!ab].c", "a.c", False, False),
        ("\\#x", "#x", False, True),
        ("# x", "# x", False, False),
        ("[", "[", False, True),
        ("a.b", "axb", False, False),
        ("**/a*b/c/**/d", "a/ab/ab/c/x/d", False, True),
        ("*a*b*a", "xaybza", False, True),
        ("a***/b", "ax/b", False, True),
        ("a**/b", "a/x/b", False, False),
        ("a[!x]b", "a/b", False, False),
    ],
)
def test_rules_mean_what_git_says(line: str, path: str, directory: bool, expected: bool) -> None:
    assert ignored(path, directory, rules([line])) is expected


@pytest.mark.parametrize(
    "line", ["*a" * 20 + "b", "**/a" * 12 + "/b", "**/*a*a*b" * 6 + "/c", "a*" * 30 + "!"]
)
def test_no_rule_takes_for_ever(line: str) -> None:
    """Of a repository that one was sent: tried in every way, these take years."""
    for path in ("a" * 250, "/".join("a" * 60), ("a" * 60 + "/") * 4 + "x"):
        assert not ignored(path, False, rules([line]))


def test_links_travel_as_files_inside_and_are_named_when_left_out(
    project: Path, tmp_path: Path
) -> None:
    write(project, {"real.py": "x"})
    (tmp_path / "outside.txt").write_text("secret")
    (project / "alias.py").symlink_to("real.py")
    (project / "out.txt").symlink_to(tmp_path / "outside.txt")
    (project / "folder").symlink_to(tmp_path)
    (project / "broken").symlink_to("nowhere")
    os.mkfifo(project / "pipe")
    found = scan(project)
    assert [file.path for file in found.files] == ["alias.py", "real.py"]
    assert sorted(note.split(":")[0] for note in found.notes) == [
        "left out broken", "left out folder", "left out out.txt", "left out pipe",
    ]  # fmt: skip


def test_unchanged_files_are_not_read_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, {"old.py": "old", "new.py": "new"})
    os.utime(project / "old.py", (1, 1))
    first = scan(project)
    read: list[str] = []
    real = hashlib.file_digest

    def spy(file, kind):  # type: ignore[no-untyped-def]
        read.append(os.path.basename(file.name))
        return real(file, kind)

    monkeypatch.setattr(bundles.hashlib, "file_digest", spy)
    assert scan(project) == first
    assert read == ["new.py"], "one so young could change within the same time stamp"
    (project / "old.py").write_text("OLD")
    os.utime(project / "old.py", (2, 2))
    assert scan(project).digest != first.digest


def test_a_damaged_cache_is_no_obstacle(project: Path, home: Path) -> None:
    write(project, {"a.py": "a"})
    os.utime(project / "a.py", (1, 1))
    digest = scan(project).digest
    (cache,) = (home / "client" / "hashes").iterdir()
    for text in ("", "[1]", '{"a.py": 3}', "\x00"):
        cache.write_text(text)
        assert scan(project).digest == digest


def test_too_much_names_the_largest_files(project: Path) -> None:
    write(project, {"small.py": "x", "data/big.bin": "x" * 5000, "data/mid.bin": "x" * 4000})
    with pytest.raises(TooLarge) as caught:
        scan(project, max_bytes=8000)
    assert "data/big.bin" in caught.value.message and ".windlassignore" in caught.value.hint
    with pytest.raises(TooLarge) as caught:
        scan(project, max_files=2)
    assert "data (2)" in caught.value.hint


def test_the_home_directory_is_never_sent(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project))
    with pytest.raises(TooLarge, match="your home"):
        scan(project)


def test_no_directory_is_an_error_that_names_it(project: Path) -> None:
    with pytest.raises(InvalidInput, match="code: 'nope' is not a directory"):
        scan("nope")


def test_a_large_file_is_left_out_and_named_and_can_be_had(tmp_path: Path) -> None:
    """One forgotten checkpoint no longer blocks the first run."""
    for name in ("data/big.bin", "weights.py", "kept.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        with (tmp_path / name).open("wb") as file:
            file.truncate(65 * 2**20)
    (tmp_path / ".gitignore").write_text("/cache/\n")
    (tmp_path / ".windlassignore").write_text("!kept.bin\n")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/words.txt").write_text("a")
    (tmp_path / "cache/other.txt").write_text("b")
    found = scan(tmp_path)
    paths = {file.path for file in found.files}
    assert paths == {"weights.py", "kept.bin", ".gitignore", ".windlassignore"}
    assert set(found.left_out) == {"data/big.bin", "cache/"}
    assert "left out data/big.bin (68.2 MB)" in found.notes[0]
    assert "--include data/big.bin sends it, --here" in found.notes[0]
    paths |= {"data/big.bin", "cache/words.txt"}
    again = scan(tmp_path, include=["data/*.bin", "cache/words.txt"])
    assert {file.path for file in again.files} == paths and again.notes == ()
    whole = scan(tmp_path, include=["cache/", "big.bin"])
    assert {file.path for file in whole.files} == paths | {"cache/other.txt"}


def test_a_file_that_lies_nowhere_is_sent_too(tmp_path: Path) -> None:
    (tmp_path / "x.ipynb").write_text("{}")
    found = scan(tmp_path, made={"x.ipynb.py": b"print(1)"})
    assert [file.path for file in found.files] == ["x.ipynb", "x.ipynb.py"]
    assert found.read("x.ipynb.py") == b"print(1)" and not (tmp_path / "x.ipynb.py").exists()

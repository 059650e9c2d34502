"""A backup of a server that works, restored to an empty home: what was there is there again."""

from __future__ import annotations

import json
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass.testing.platform import Platform, wait_for
from windlass.testing.postgres import PostgresServer

SCRIPT = """\
import os, pathlib, sys
print('trained', *sys.argv[1:], flush=True)
pathlib.Path(os.environ['WINDLASS_OUTPUT_DIR'], 'result.txt').write_text('0.93')
import windlass
with windlass.checkpoint(5) as path:
    (path / 'model').write_text('weights')
"""


@pytest.fixture
def restored(tmp_path: Path, dialect: str, request: pytest.FixtureRequest) -> Iterator[Platform]:
    """A home that is not there yet, and an empty database for it."""
    url, server = "", None
    if dialect == "postgresql":
        server = request.getfixturevalue("postgres")
        assert isinstance(server, PostgresServer)
        url = server.fresh()
    other = Platform(tmp_path / "restored", database=url)
    yield other
    if other.process is not None:
        other.__exit__(None, None, None)
    if server is not None:
        server.drop(url)


def backup(platform: Platform, *words: str) -> dict[str, object]:
    # A running server is asked which database it has; one that is yet to be made is not.
    told = platform.database and words[0] == "restore"
    where = ("--database", platform.database) if told else ()
    done = platform.cli("backup", *words, *where, "-o", "json")
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_restored_server_has_the_jobs_their_logs_and_files_and_runs_on(
    platform: Platform, restored: Platform, tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(SCRIPT)
    done = platform.cli("run", "--name", "trained", "train.py", "7", cwd=tmp_path / "code")
    assert done.returncode == 0, done.stderr
    # What a killed machine leaves: a gang that runs, and jobs that come in while it is copied.
    running = platform.witness("silent", name="ran", retry={"times": 1, "on": ["lost"]})
    platform.wait_state(running, "running")
    enough = threading.Event()
    client = platform.new_client()

    def submit() -> None:
        while not enough.is_set():
            client.jobs.submit({"run": "true", "hold": True})

    busy = threading.Thread(target=submit)
    busy.start()
    file = tmp_path / "all.tar.gz"
    try:
        wait_for(lambda: len(platform.client.jobs.list(limit=20)) > 10)
        made = backup(platform, "create", "--with-secrets", str(file))
    finally:
        enough.set()
        busy.join()
        client.close()
    assert file.stat().st_mode & 0o777 == 0o600
    assert not made["left_out"]
    platform.client.jobs.stop(running.id, now=True)
    platform.wait(running)
    platform.stop()

    told = backup(restored, "restore", str(file))
    assert (told["lost"], told["secrets"]) == (1, True)
    restored.start()

    jobs = list(restored.client.jobs.list(limit=10_000))
    assert {"trained", "ran"} <= {job.name for job in jobs}
    # Of one moment: the last jobs that came in have their events, none of them is missing.
    for job in [*jobs[:50], *jobs[-2:]]:
        events = restored.client.jobs.events(job.id)
        if job.name != "ran":
            assert [each["seq"] for each in events] == list(range(1, job.revision + 1))
    assert "trained 7" in restored.logs("trained")
    # Lost is in its retry rules: it runs again, here.
    wait_for(lambda: restored.client.jobs.get(running.id).attempt == 2)
    attempts = restored.client.jobs.get(running.id).data["attempts"]
    assert attempts[0]["outcome"] == "lost"
    assert "restored" in attempts[0]["reason"]
    restored.client.jobs.stop(running.id, now=True)

    again = restored.cli("rerun", "trained", "-q")
    assert again.returncode == 0, again.stderr
    assert restored.wait(again.stdout.strip()).state == "succeeded"
    saved = json.loads(restored.cli("checkpoint", "ls", jobs[-1].id, "-o", "json").stdout)
    assert [each["step"] for each in saved["items"]] == [5]
    fetched = restored.cli("checkpoint", "get", jobs[-1].id, "latest", cwd=tmp_path)
    assert fetched.returncode == 0, fetched.stderr
    results = list(restored.home.glob("attempts/*/*/out/result.txt"))
    assert len(results) == 2
    proven = restored.cli("audit", "verify")
    assert proven.returncode == 0, proven.stderr


@pytest.mark.parametrize("dialect", ["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)])
def test_a_backup_without_secrets_says_what_does_not_work(
    platform: Platform, restored: Platform, tmp_path: Path
) -> None:
    platform.client.secrets.set("TOKEN", "hush-hush-hush")
    file = tmp_path / "all.tar"
    backup(platform, "create", "--without", "outputs", str(file))
    kek = (platform.home / "kek").read_text()
    with tarfile.open(file) as tar:
        names = tar.getnames()
        assert not [name for name in names if name.startswith("secrets/")]
        content = b"".join(
            found.read() for each in tar if (found := tar.extractfile(each)) is not None
        )
    assert kek.split()[1].encode() not in content
    platform.stop()

    words = restored.cli(
        "backup",
        "restore",
        str(file),
        *(("--database", restored.database) if restored.database else ()),
    )
    assert words.returncode == 0, words.stderr
    assert "access keys are refused" in words.stderr
    assert "kek" in words.stderr
    restored.start()  # with a key of its own for the owner, made anew
    names_kept = [each["name"] for each in restored.client.secrets.list()]
    assert names_kept == ["TOKEN"]
    job = restored.submit("true", environment={"secrets": ["TOKEN"]})
    refused = restored.wait(job)
    assert (refused.outcome, refused.state) == ("refused", "failed")
    assert "the secret TOKEN does not open" in refused.reason
    assert "key-encryption key" in refused.reason
    with (restored.home / "kek").open("a") as added:
        added.write(kek)
    assert (
        restored.wait(restored.submit("true", environment={"secrets": ["TOKEN"]})).exit_code == 0
    )


def test_what_is_not_whole_or_not_empty_is_refused_and_nothing_is_touched(
    shared: Platform, tmp_path: Path
) -> None:
    shared.wait(shared.submit("true"))
    file = tmp_path / "good.tar"
    backup(shared, "create", str(file))
    assert "is there already" in shared.cli("backup", "create", str(file)).stderr

    filled = shared.cli("backup", "restore", str(file))
    assert filled.returncode == 1
    assert "runs" in filled.stderr or "is not empty" in filled.stderr

    whole = file.read_bytes()
    home = tmp_path / "empty"
    env = {**shared.env, "WINDLASS_HOME": str(home)}
    manifest_at = whole.rindex(b'"revision": "')
    broken = {
        "cut short": whole[: len(whole) // 2],
        "was changed": whole.replace(b"SQLite format 3", b"SQLite format 4", 1),
        "a newer one": whole[: manifest_at + 13] + b"9999" + whole[manifest_at + 17 :],
        "not a whole backup": b"hello",
    }
    for words, content in broken.items():
        (tmp_path / "bad.tar").write_bytes(content)
        refused = shared.cli("backup", "restore", str(tmp_path / "bad.tar"), env=env)
        assert refused.returncode in (1, 2), refused.stdout
        assert words in refused.stderr
        assert not home.exists()

    (home / "things").mkdir(parents=True)
    refused = shared.cli("backup", "restore", str(file), env=env)
    assert "is not empty: it has things" in refused.stderr
    assert [path.name for path in home.iterdir()] == ["things"]

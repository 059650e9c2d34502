"""Code that no job needs any more goes, in small writes; what somebody is about to use stays."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from windlass.server.bundles import references, service
from windlass.server.bundles.blobs import Blobs
from windlass.server.bundles.service import BundleFile, Manifest

DAY_MS = 86_400_000


def content(number: int) -> bytes:
    return f"print({number})\n".encode()


def manifest(*numbers: int) -> Manifest:
    return Manifest(
        files=tuple(
            BundleFile(
                path=f"{number}.py", size=len(content(number)),
                digest=hashlib.sha256(content(number)).hexdigest(),
            )
            for number in numbers
        )
    )  # fmt: skip


def keep(blobs: Blobs, project: str, *numbers: int) -> list[Path]:
    """Blobs of a day long ago."""
    held, found = blobs.of(project), []
    for number in numbers:

        async def chunks(number: int = number) -> AsyncIterator[bytes]:
            yield content(number)

        digest = hashlib.sha256(content(number)).hexdigest()
        asyncio.run(held.put(digest, chunks()))
        os.utime(held.path(digest), (1, 1))
        found.append(held.path(digest))
    return found


def test_bundles_without_a_job_are_forgotten_a_few_at_a_time(
    tenancy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "FORGOTTEN", 2)
    blobs, project = Blobs(tmp_path), tenancy.who.project_id
    keep(blobs, project, 1)
    note = partial(service.record, project_id=project, blobs=blobs)
    digests = [
        tenancy.write(partial(note, manifest=manifest(n), now_ms=1000)).digest for n in range(6)
    ]
    tenancy.write(partial(note, manifest=manifest(0, 5), now_ms=DAY_MS))
    tenancy.submit("uses-it", code={"bundle": digests[1]})
    forget = partial(service.forget, before_ms=DAY_MS)
    assert [tenancy.write(forget) for _ in range(4)] == [2, 2, 1, 0]
    left = tenancy.read(references.wanted)
    assert left == {project: {file.digest for file in manifest(0, 1, 5).files}}


def test_old_blobs_go_unless_a_bundle_names_them_or_somebody_asked(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    named, asked, old = keep(blobs, "a", 1, 2, 3)
    [others] = keep(blobs, "b", 1)
    assert blobs.of("a").has(asked.name, len(content(2)))
    assert blobs.sweep({"a": {named.name}}, DAY_MS) == 2
    assert (named.exists(), asked.exists()) == (True, True)
    assert (old.exists(), others.exists()) == (False, False)

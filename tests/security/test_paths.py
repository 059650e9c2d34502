"""R-S6, R-S10: no name, path or address that a caller gives leads out of where it belongs.

Other systems fell to one form of `..` after another; here are all of them, sent to every field of
the API that is a path, is used in one, or looks like one. Canaries lie where they would lead to.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from windlass.core.errors import InvalidInput, TooLarge
from windlass.core.signing import sign
from windlass.server.bundles import service as bundles
from windlass.testing.platform import Platform
from windlass.worker import bundle as extractor
from windlass.worker.launch import Refused

CANARY = b"canary-of-the-path-tests"
UP = "../../../../../../../../.."
FORMS = [
    "..",
    "../canary",
    f"{UP}/etc/passwd",
    "..\\..\\canary",
    "a/../../canary",
    "./../canary",
    "....//....//canary",
    "..;/canary",
    "canary;a=b",
    "canary#..",
    "#/../canary",
    "?/../canary",
    "%2e%2e/canary",
    "%2e%2e%2fcanary",
    "%252e%252e%252fcanary",
    "..%2fcanary",
    "..%5ccanary",
    "..%c0%afcanary",
    "%c0%ae%c0%ae/canary",
    "/etc/passwd",
    "//etc/passwd",
    "///proc/self/root/etc/passwd",
    "/proc/self/environ",
    "file:///etc/passwd",
    "FILE:/etc/passwd",
    "local:///etc/passwd",
    "s3://bucket/../../etc/passwd",
    "http://127.0.0.1/../x",
    "\\\\host\\share",
    "C:\\windows\\win.ini",
    "c:/windows",
    "~root/.ssh/id_rsa",
    "$HOME/canary",
    "canary\x00.txt",
    "a\nb",
    "\u2025/canary",
    "\uff0e\uff0e/canary",
    ". ./canary",
    "CON",
    "",
    ".",
    "/",
    " ",
]
NEVER_A_FILE = [
    form
    for form in FORMS
    if form.startswith("/") or "\\" in form or ".." in form.split("/") or not form
    or "\x00" in form or "\n" in form or form in (".",)
]  # fmt: skip


class Ground:
    """A server, a canary beside it and one inside its home, and a finished job."""

    def __init__(self, platform: Platform, folder: Path) -> None:
        self.platform, self.folder = platform, folder
        for path in (folder / "canary", platform.home / "canary", folder / "outside" / "canary"):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(CANARY)
        self.job = platform.submit(
            [sys.executable, "-c", "print('x')"], name="finished", retry={"times": 0}
        )
        platform.wait(self.job)
        self.token = (platform.attempts(self.job)[-1] / "token").read_text().strip()

    def raw(self, method: str, target: str, body: bytes = b"") -> tuple[int, bytes]:
        """Exactly this target on the wire, well signed."""
        key = self.platform.credentials()
        host = self.platform.url.partition("//")[2]
        headers = {"Host": host}
        if body:
            headers["Content-Type"] = "application/json"
        headers |= sign(
            method, self.platform.url + target, headers, body, key["access_key"],
            key["secret_key"], int(time.time() * 1000),
        )  # fmt: skip
        connection = http.client.HTTPConnection(host, timeout=60)
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def untouched(self) -> None:
        for path in (
            self.folder / "canary", self.platform.home / "canary",
            self.folder / "outside" / "canary",
        ):  # fmt: skip
            assert path.read_bytes() == CANARY, path
        assert sorted(each.name for each in self.folder.iterdir()) == ["canary", "home", "outside"]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("paths")
    with Platform(folder / "home") as platform:
        yield Ground(platform, folder)


def _addresses() -> list[tuple[str, str]]:
    """Every (method, path) with a parameter in its path."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from docs.writers.api import routes

    return [(method, path) for method, path, _ in routes() if "{" in path]


@pytest.mark.slow
def test_no_form_in_an_address_leads_anywhere(ground: Ground) -> None:
    """As one part of the path, as it is and once more encoded."""
    tried = 0
    for method, path in _addresses():
        head, _, rest = path.partition("{")
        tail = rest.partition("}")[2].replace("{", "x").replace("}", "x")
        for form in FORMS:
            if not form:
                continue
            for text in dict.fromkeys((quote(form, safe=""), quote(form, safe="%/;.\\"))):
                if any(char in text for char in " \n\x00#?"):
                    continue
                body = b"{}" if method in ("PUT", "POST", "PATCH") else b""
                status, answer = ground.raw(method, head + text + tail, body)
                tried += 1
                assert CANARY not in answer and b"root:" not in answer, (method, path, form)
                assert status < 500, (method, path, form, answer)
                assert status != 200 or _harmless(method, path, text), (method, path, form)
    assert tried > 500
    ground.untouched()


def _harmless(method: str, path: str, text: str) -> bool:
    """A parent folder in an address may name another route (`/api/v1/jobs/..`): reading that is
    no way out. What changes something must not have taken such a name."""
    return method in ("GET", "HEAD")


@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_no_form_in_a_bundle_leaves_its_folder(form: str, tmp_path: Path) -> None:
    """What the server takes, the worker lays out below `work`; nothing else is written."""
    content = b"code"
    digest = hashlib.sha256(content).hexdigest()
    entry = {"path": form, "digest": digest, "size": len(content), "mode": 0o644}
    taken = True
    try:
        bundles.check(_manifest({"files": [entry]}))
    except (InvalidInput, ValueError):
        taken = False
    if form in NEVER_A_FILE:
        assert not taken
    work = tmp_path / "in" / "work"
    work.mkdir(parents=True)
    blob = tmp_path / "blob"
    blob.write_bytes(content)
    root, opened = os.open(work, os.O_RDONLY), os.open(blob, os.O_RDONLY)
    try:
        extractor._check([entry])
        extractor._place(root, entry, opened)
    except (Refused, ValueError):
        assert not taken, "the server took what no worker lays out"
    finally:
        os.close(root)
        os.close(opened)
    inside = work.resolve()
    for path in (path for path in tmp_path.rglob("*") if path.is_file() and path != blob):
        assert inside in path.resolve().parents, path


def _manifest(content: dict[str, Any]) -> bundles.Manifest:
    return bundles.Manifest.model_validate_json(json.dumps(content))


def _files(count: int, size: int = 1) -> dict[str, Any]:
    return {
        "files": [
            {"path": f"f{number}", "digest": "0" * 64, "size": size} for number in range(count)
        ]
    }


def test_a_bundle_is_bounded_in_number_size_and_depth() -> None:
    with pytest.raises(ValueError):
        _manifest(_files(bundles.MAX_FILES + 1))
    with pytest.raises(TooLarge):
        bundles.check(_manifest(_files(1, bundles.MAX_BLOB + 1)))
    with pytest.raises(TooLarge):
        bundles.check(_manifest(_files(17, bundles.MAX_BLOB)))
    deep = {"path": "d/" * 100 + "f", "digest": "0" * 64, "size": 1}
    with pytest.raises(Refused):
        extractor._check([deep])
    with pytest.raises(Refused):
        extractor._check([{"path": "f", "digest": "0" * 64, "size": extractor.MAX_BYTES + 1}])


def test_a_bundle_holds_nothing_but_regular_files() -> None:
    """There is no field that could make a link, a device or a setuid bit."""
    known = set(bundles.BundleFile.model_fields)
    assert known == {"path", "digest", "size", "mode"}
    for mode in (0o4755, 0o2755, 0o1777, 0o120777):
        entry = {"path": "f", "digest": "0" * 64, "size": 1, "mode": mode}
        with pytest.raises(ValueError):
            bundles.BundleFile.model_validate(entry)


def test_the_extractor_follows_no_link_that_lies_in_its_way(tmp_path: Path) -> None:
    content = b"code"
    digest = hashlib.sha256(content).hexdigest()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(CANARY)
    work = tmp_path / "work"
    work.mkdir()
    (work / "folder").symlink_to(outside)
    (work / "name").symlink_to(outside / "file")
    (work / "hard").hardlink_to(outside / "file")
    blob = tmp_path / "blob"
    blob.write_bytes(content)
    for path in ("folder/file", "name", "hard"):
        entry = {"path": path, "digest": digest, "size": len(content), "mode": 0o644}
        root, opened = os.open(work, os.O_RDONLY), os.open(blob, os.O_RDONLY)
        try:
            with pytest.raises(Refused):
                extractor._place(root, entry, opened)
        finally:
            os.close(root)
            os.close(opened)
    assert (outside / "file").read_bytes() == CANARY


@pytest.mark.parametrize("form", [form for form in FORMS if form], ids=repr)
def test_no_form_in_a_job_reaches_a_file_of_the_server(ground: Ground, form: str) -> None:
    """A held job with the form in every field that takes a path; then it is removed."""
    spec: dict[str, Any] = {
        "run": ["true", form], "hold": True,
        "code": {"dir": form, "ignore": [form]},
        "environment": {"python": form, "vars": {"PLACE": form}},
    }  # fmt: skip
    made = ground.platform.call("POST", "/jobs", {"spec": spec})
    assert made.status_code in (201, 422), made.text
    for extra in ({"name": form}, {"code": {"bundle": form}},
                  {"environment": {"image": form}}, {"data": {"SET": form}},
                  {"outputs": {"checkpoints": form}}, {"queue": {"name": form}}):  # fmt: skip
        refused = ground.platform.call("POST", "/jobs", {"spec": {"run": "true", **extra}})
        assert refused.status_code in (404, 409, 422), (extra, refused.status_code, refused.text)
    # An address of a repository is opened by the job alone, as the job: here it brings nothing.
    code = {"run": "true", "code": {"git": form}}
    fetched = ground.platform.call("POST", "/jobs", {"spec": code})
    assert fetched.status_code in (201, 422), fetched.text
    if fetched.status_code == 201:
        assert ground.platform.wait(fetched.json()["id"]).state == "failed"
    if made.status_code == 201:
        ground.platform.call("POST", f"/jobs/{made.json()['id']}/stop", {})
    for each in (made, fetched):
        if each.status_code == 201:
            ref = each.json()["id"]
            ground.platform.wait(ref)
            assert ground.platform.call("DELETE", f"/jobs/{ref}").status_code == 204
    ground.untouched()


@pytest.mark.parametrize("form", [form for form in FORMS if form], ids=repr)
def test_no_form_in_a_query_reaches_a_file(ground: Ground, form: str) -> None:
    for path in (
        f"/jobs/finished/logs?rank={quote(form, safe='')}",
        f"/jobs/finished/logs?grep={quote(form, safe='')}",
        f"/jobs/finished/stream?cursor={quote(form, safe='')}",
        f"/jobs?name={quote(form, safe='')}",
        f"/jobs/finished/metrics?key={quote(form, safe='')}",
        f"/audit?object={quote(form, safe='')}",
    ):
        if "stream" in path:
            status, answer = ground.raw("GET", "/api/v1" + path)
            assert status == 422, (path, status)
        else:
            found = ground.platform.call("GET", path)
            status, answer = found.status_code, found.content
        assert status < 500 and CANARY not in answer and b"root:" not in answer, (path, status)


def test_a_checkpoint_that_lies_elsewhere_is_not_removed_with_its_job(tmp_path: Path) -> None:
    """User code may name any path; the server takes none of them for a checkpoint."""
    with Platform(tmp_path / "home") as platform:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "canary").write_bytes(CANARY)
        say = (
            "import json, os, sys, urllib.error, urllib.request as u\n"
            "for path in json.loads(sys.argv[1]):\n"
            "    body = {'attempt': 1, 'step': 1, 'path': path, 'digest': '0' * 64}\n"
            "    r = u.Request(os.environ['WINDLASS_URL'] + '/api/v1/run/checkpoints',\n"
            "        json.dumps(body).encode(), {'Content-Type': 'application/json',\n"
            "        'Authorization': 'Bearer ' + os.environ['WINDLASS_TOKEN']})\n"
            "    try:\n"
            "        u.build_opener(u.ProxyHandler({})).open(r).read()\n"
            "        sys.exit('taken: ' + path)\n"
            "    except urllib.error.HTTPError as err:\n"
            "        assert err.code == 422, err.code\n"
        )
        paths = [str(outside), f"../{outside.name}", "/", "file:///" + str(outside)]
        job = platform.submit([sys.executable, "-c", say, json.dumps(paths)], retry={"times": 0})
        assert platform.wait(job).state == "succeeded", platform.logs(job)
        assert platform.client.jobs.checkpoints(job.id) == []
        assert platform.call("DELETE", f"/jobs/{job.id}").status_code == 204
        assert (outside / "canary").read_bytes() == CANARY

"""Nothing a caller can send is a 5xx: the table of inputs that break a plain app, and more."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import socket
import subprocess
import time

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windlass.core import errors as words
from windlass.core import signing
from windlass.server.http.errors import answer, encode
from windlass.testing import small_app
from windlass.testing.small_app import call, send


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    return small_app.make(tmp_path_factory.mktemp("home"), pause_seconds=1.0)


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    made = small_app.make(tmp_path_factory.mktemp("live"), pause_seconds=1.0)
    with small_app.serving(made):
        yield made


def error_of(response):
    """The error in an answer, which must be strict JSON whatever it reports."""

    def refuse(text):
        raise AssertionError(f"{text} in an answer")

    body = json.loads(response.content.decode("utf-8"), parse_constant=refuse)
    json.dumps(body, ensure_ascii=False).encode("utf-8")
    return body["error"]


BAD_BODIES = {
    "NaN for an int": b'{"name": "a", "count": NaN}',
    "NaN for a float": b'{"name": "a", "ratio": NaN}',
    "Infinity": b'{"name": "a", "ratio": -Infinity}',
    "1e400 for an int": b'{"name": "a", "count": 1e400}',
    "1e400 for a float": b'{"name": "a", "ratio": 1e400}',
    "lone surrogate": b'{"name": "\\ud800"}',
    "lone low surrogate in a key": b'{"name": "a", "\\udfff": 1}',
    "surrogate in raw bytes": b'{"name": "\xed\xa0\x80"}',
    "NUL": b'{"name": "a\\u0000b"}',
    "NUL in a key": b'{"name": "a", "x\\u0000": 1}',
    "2^70": b'{"name": "a", "count": 1180591620717411303424}',
    "2^63": b'{"name": "a", "count": 9223372036854775808}',
    "negative": b'{"name": "a", "count": -1}',
    "true as int": b'{"name": "a", "count": true}',
    "text as int": b'{"name": "a", "count": "1"}',
    "float as int": b'{"name": "a", "count": 1.5}',
    "int as text": b'{"name": 1}',
    "null": b'{"name": null}',
    "missing": b"{}",
    "unknown field": b'{"name": "a", "cuont": 1}',
    "duplicate keys": b'{"name": "a", "name": "b"}',
    "duplicate keys by escape": b'{"name": "a", "n\\u0061me": "b"}',
    "UTF-16": '{"name": "a"}'.encode("utf-16"),
    "UTF-32": '{"name": "a"}'.encode("utf-32-le"),
    "byte order mark": b'\xef\xbb\xbf{"name": "a"}',
    "bad UTF-8": b'{"name": "\xff\xfe"}',
    "100,000 brackets": b"[" * 100_000,
    "100,000 nested objects": b'{"a":' * 100_000,
    "deep and closed": b'{"name": ' + b"[" * 65 + b"]" * 65 + b"}",
    "5,000-digit int": b'{"name": "a", "count": ' + b"9" * 5000 + b"}",
    "5,000-digit float": b'{"name": "a", "ratio": ' + b"9" * 5000 + b".5e5000}",
    "leading zero": b'{"name": "a", "count": 01}',
    "trailing text": b'{"name": "a"} x',
    "trailing comma": b'{"name": "a",}',
    "single quotes": b"{'name': 'a'}",
    "a list": b"[]",
    "a number": b"1",
    "null alone": b"null",
    "empty": b"",
    "only blanks": b"   ",
    "unfinished string with escapes": b'{"name": "' + b'\\"' * 100_000,
    "control character": b'{"name": "a\nb"}',
    "long text": b'{"name": "' + b"x" * 5000 + b'"}',
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_bad_body_is_422_and_says_why(server, body):
    response = call(server, "POST", "/api/v1/things", body, {"content-type": "application/json"})
    assert response.status_code == 422
    error = error_of(response)
    assert error["code"] == "invalid-input" and error["message"]
    assert len(response.content) < 4096


@pytest.mark.parametrize(
    "body, field, found, allowed",
    [
        (b'{"name": "a", "count": -1}', "count", "-1", "greater than or equal to 0"),
        (b'{"name": "a", "count": true}', "count", "true", "a valid integer"),
        (b'{"name": "a", "cuont": 1}', "cuont", "1", "did you mean count? known: count, name"),
        (b"{}", "name", "nothing", "required"),
    ],
)
def test_the_answer_names_field_value_and_choices(server, body, field, found, allowed):
    [told] = error_of(call(server, "POST", "/api/v1/things", body))["details"]["fields"]
    assert (told["field"], told["found"]) == (field, found)
    assert allowed in told["allowed"]


def test_a_field_deep_in_a_job_is_named_by_its_path(server):
    body = json.dumps({"spec": {"run": "x", "roles": {"worker": {"gpus": -1}}}}).encode()
    error = error_of(call(server, "POST", "/api/v1/jobs", body))
    assert error["details"]["fields"][0]["field"] == "spec.roles.worker.gpus"
    assert "spec.roles.worker.gpus" in error["message"] and "-1" in error["message"]


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "\xff"])
def test_a_body_that_is_not_called_json_is_refused(server, kind):
    response = call(server, "POST", "/api/v1/things", b'{"name": "a"}', {"content-type": kind})
    assert response.status_code in (401, 422)  # a header that is not ASCII cannot be signed by us
    assert error_of(response)["code"] in ("invalid-input", "unauthenticated")


def test_what_is_right_is_taken(server):
    body = '{"name": "é😀", "count": 9223372036854775807, "ratio": 1}'.encode()
    for kind in ("application/json", "application/json; charset=utf-8"):
        response = call(server, "POST", "/api/v1/things", body, {"content-type": kind})
        assert response.status_code == 201, response.text
        assert response.json() == {"name": "é😀", "count": 2**63 - 1, "ratio": 1.0}


@pytest.mark.parametrize(
    "query, status",
    [
        ("limit=7&name=a", 200),
        ("name=a%20b", 200),
        ("", 200),
        ("limit=0", 422),
        ("limit=101", 422),
        ("limit=1.0", 422),
        ("limit=%207", 422),
        ("limit=%2B7", 422),
        ("limit=1_0", 422),
        ("limit=٣", 422),
        ("limit=" + "9" * 5000, 422),
        ("limit=true", 422),
        ("limit=", 422),
        ("limit=1&limit=2", 422),
        ("limti=1", 422),
        ("name=%00", 422),
        ("name=%ff", 422),
        ("name=%ed%a0%80", 422),
        ("name=" + "x" * 41, 422),
        ("x" * 9000, 422),
        ("&", 422),
    ],
)
def test_query_parameters_are_strict(server, query, status):
    target = "/api/v1/things" + (f"?{query}" if query else "")
    target = target.encode().decode("latin-1")
    sent = {"host": "127.0.0.1"}
    url = f"http://127.0.0.1{target}".encode("latin-1").decode()
    key = server.key
    now_ms = time.time_ns() // 1_000_000
    sent |= signing.sign("GET", url, sent, b"", key.access_key, key.secret_key, now_ms)
    response = send(server.app, "GET", target, b"", sent)
    assert response.status_code == status, response.text
    if status == 422:
        assert error_of(response)["message"]


@pytest.mark.parametrize("path", ["/api/v1/things/%00", "/api/v1/things/" + "x" * 5000])
def test_a_bad_path_is_422(server, path):
    assert call(server, "GET", path).status_code == 422


@pytest.mark.parametrize("path", ["/nowhere", "/api/v1/things/a/b", "/%2e%2e/x", "//things"])
def test_an_unknown_path_is_404_in_our_form(server, path):
    response = call(server, "GET", path)
    assert response.status_code == 404
    assert error_of(response)["code"] == "not-found"


def test_a_wrong_method_is_405_in_our_form(server):
    response = call(server, "PATCH", "/api/v1/things")
    assert response.status_code == 405 and error_of(response)["code"] == "invalid-input"
    assert call(server, "BREW", "/api/v1/things").status_code == 422


def test_our_own_mistake_is_a_500_with_a_number_and_no_detail(server, caplog):
    with caplog.at_level(logging.ERROR):
        response = call(server, "GET", "/api/v1/broken")
    error = error_of(response)
    assert response.status_code == 500 and error["code"] == "internal"
    assert b"secret detail" not in response.content
    assert response.headers["x-wl-request-id"] == error["request_id"]
    assert error["request_id"] in caplog.text and "a secret detail" in caplog.text


def test_a_route_that_forgets_to_spend_the_signature_is_found_at_once(server, caplog):
    with caplog.at_level(logging.ERROR):
        response = call(server, "POST", "/api/v1/forgetful")
    assert response.status_code == 500
    assert "did not spend the signature" in caplog.text


@pytest.mark.parametrize("status, kind", [(503, "Unavailable"), (507, "StorageFull")])
def test_try_later_says_when(status, kind):
    response = answer(getattr(words, kind)("away", retry_after_seconds=3))
    assert response.status_code == status and response.headers["retry-after"] == "3"


def test_any_value_at_all_can_be_reported():
    loop: list = []
    loop.append(loop)
    odd = {"a": float("nan"), "b": "\ud800", "c": 10**5000, 1: b"\xff", "d": object(), "e": loop}
    json.loads(encode(odd), parse_constant=lambda text: pytest.fail(text))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters()),  # surrogates and NUL among them
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(), max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.fixed_dictionaries(
        {}, optional={"name": json_values, "count": json_values, "ratio": json_values}
    )
    | json_values
)
def test_no_json_value_is_ever_a_5xx(server, value):
    body = json.dumps(value).encode()
    response = call(server, "POST", "/api/v1/things", body)
    assert response.status_code in (201, 422), response.text
    json.loads(response.content.decode())


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=200))
def test_no_bytes_are_ever_a_5xx(server, body):
    headers = {"content-type": "application/json"}
    response = call(server, "POST", "/api/v1/jobs", body, headers)
    assert response.status_code == 422
    error_of(response)


# --- on a real socket ---------------------------------------------------------------------------


def talk(live, data, wait=60.0):
    """Raw bytes to the server and what comes back until it is done."""
    port = int(live.url.rpartition(":")[2])
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as sock:
        try:
            for piece in data if isinstance(data, list) else [data]:
                sock.sendall(piece)
            while piece := sock.recv(65536):
                got += piece
                head, blank, body = got.partition(b"\r\n\r\n")
                length = [
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length:")
                ]
                if blank and length and len(body) >= length[0]:
                    break
        except (ConnectionResetError, BrokenPipeError):
            pass
    return got


def sign_live(live, method, path, body, headers=None):
    sent = {"Content-Type": "application/json", **(headers or {})}
    url = live.url + path
    now_ms = time.time_ns() // 1_000_000
    key = live.key
    return url, sent | signing.sign(
        method, url, sent, body, key.access_key, key.secret_key, now_ms
    )


def test_the_whole_table_on_a_real_socket(live):
    with httpx.Client(timeout=60) as client:
        for name, body in BAD_BODIES.items():
            url, headers = sign_live(live, "POST", "/api/v1/things", body)
            response = client.post(url, content=body, headers=headers)
            assert response.status_code == 422, name
        body = b'{"name": "a"}'
        url, headers = sign_live(live, "POST", "/api/v1/things", body)
        assert client.post(url, content=body, headers=headers).status_code == 201


def test_a_body_over_its_cap_is_refused_announced_or_not(live):
    big = b'{"name": "' + b"x" * 20_000_000 + b'"}'
    head = b"POST /api/v1/open HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    announced = talk(live, head + b"Content-Length: %d\r\n\r\n" % len(big))
    assert announced.startswith(b"HTTP/1.1 413")
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    chunked = talk(live, [head + b"Transfer-Encoding: chunked\r\n\r\n"] + [chunk] * 17)
    assert chunked.startswith(b"HTTP/1.1 413")


def test_each_route_has_its_own_cap(live):
    blob = b"z" * 3_000_000
    digest = hashlib.sha256(blob).hexdigest()
    url, headers = sign_live(live, "PUT", f"/api/v1/blobs/{digest}", blob)
    response = httpx.put(url, content=blob, headers=headers, timeout=60)
    assert response.status_code == 200 and response.json() == {"matches": True}
    response = httpx.put(url, content=blob[:-1] + b"y", headers=headers, timeout=60)
    assert response.status_code == 401 and "not the one that was signed" in response.text
    del headers["X-Wl-Content-Sha256"]
    assert httpx.put(url, content=blob, headers=headers, timeout=60).status_code == 401


def test_a_streamed_body_without_a_signed_hash_must_be_empty(live):
    url, headers = sign_live(live, "PUT", "/api/v1/blobs/x", b"")
    assert httpx.put(url, headers=headers, timeout=60).status_code == 200
    url, headers = sign_live(live, "PUT", "/api/v1/blobs/x", b"")
    assert httpx.put(url, content=b"slipped in", headers=headers, timeout=60).status_code == 401


def test_too_many_or_too_large_headers_are_refused(live):
    head = b"GET /api/v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    many = head + b"".join(b"x-%d: y\r\n" % n for n in range(200)) + b"\r\n"
    assert talk(live, many).startswith(b"HTTP/1.1 413")
    assert talk(live, head + b"x: " + b"y" * 40_000 + b"\r\n\r\n")[9:12] in (b"413", b"400")
    assert talk(live, head + b"\r\n").startswith(b"HTTP/1.1 200")


def test_a_body_that_stops_arriving_is_given_up_and_others_are_served_meanwhile(live):
    head = b"POST /api/v1/open HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    port = int(live.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as slow:
        slow.sendall(head + b"Content-Length: 100\r\n\r\n{")
        assert httpx.get(live.url + "/api/v1/health", timeout=60).status_code == 200
        assert b"the body stopped arriving" in slow.recv(65536)


@pytest.mark.parametrize(
    "arguments",
    [
        ["/api/v1/things?name=b&limit=3"],
        ["-X", "DELETE", "/api/v1/things/a"],
        ["-H", "Content-Type: application/json", "-d", '{"name": "a", "count": 3}',
         "/api/v1/things"],
        ["-H", "Content-Type: application/json", "-H", "Idempotency-Key:   k   l",
         "-d", '{"name": "a"}', "/api/v1/things"],
    ],
    ids=["get with unsorted query", "delete", "post", "post with idempotency key"],
)  # fmt: skip
def test_stock_curl_signs_for_us(live, arguments):
    *options, path = arguments
    key = live.key
    done = subprocess.run(
        ["curl", "-sS", "--fail-with-body", "--aws-sigv4", "wl:wl:local:windlass",
         "--user", f"{key.access_key}:{key.secret_key}", *options, live.url + path],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_stock_curl_uploads_with_a_signed_hash(live, tmp_path):
    file = tmp_path / "blob"
    file.write_bytes(b"content")
    digest = hashlib.sha256(b"content").hexdigest()
    key = live.key
    done = subprocess.run(
        ["curl", "-sS", "--aws-sigv4", "wl:wl:local:windlass",
         "--user", f"{key.access_key}:{key.secret_key}",
         "-H", f"X-Wl-Content-Sha256: {digest}", "-T", str(file),
         f"{live.url}/api/v1/blobs/{digest}"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert json.loads(done.stdout) == {"matches": True}


def test_curl_with_a_wrong_secret_is_refused(live):
    done = subprocess.run(
        ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--aws-sigv4",
         "wl:wl:local:windlass", "--user", f"{live.key.access_key}:wrong",
         live.url + "/api/v1/things"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "401"


# --- the description ----------------------------------------------------------------------------


def test_openapi_describes_bodies_errors_and_credentials(server):
    response = call(server, "GET", "/api/v1/openapi.json")
    document = response.json()
    post = document["paths"]["/api/v1/things"]["post"]
    schema = post["requestBody"]["content"]["application/json"]["schema"]
    assert schema["$ref"].startswith("#/components/schemas/Thing")
    assert post["security"] == [{"signature": []}, {"token": []}]
    assert document["paths"]["/api/v1/health"]["get"]["security"] == []
    assert document["paths"]["/api/v1/worker/beat"]["post"]["security"] == [{"token": []}]
    assert "422" not in post["responses"]
    assert post["responses"]["default"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/Error"
    }
    names = set(document["components"]["schemas"])
    text = json.dumps(document)
    for ref in set(re.findall(r'"#/components/schemas/([^"]+)"', text)):
        assert ref in names, ref
    limits = document["components"]["schemas"]
    taken = limits[_input_name(limits, "LimitSpec")]["properties"]["time"]
    assert "20m" in json.dumps(taken)  # what may be sent: a text such as 20m, or seconds


def _input_name(schemas, name):
    return f"{name}-Input" if f"{name}-Input" in schemas else name

"""Signatures against AWS's own signer, and against what they must refuse."""

from __future__ import annotations

import hashlib

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.core import signing
from windlass.core.errors import ClockSkew, Unauthenticated

NOW = 1_794_732_940_000  # 2026-11-15T08:55:40Z
AWS = signing.Scheme("aws", "amz", "us-east-1", "execute-api")
AK, SK = "WLAAAAAAAAAAAAAAAAAA", "s" * 40

unreserved = "abcXYZ019-_.~"
segment = st.text(unreserved + "%20", max_size=8).filter(lambda s: s not in (".", ".."))
paths = st.lists(segment, max_size=4).map(lambda parts: "/" + "/".join(parts))
pair = st.tuples(
    st.text(unreserved, min_size=1, max_size=6), st.text(unreserved + "%", max_size=6)
)
queries = st.lists(pair, max_size=5).map(lambda pairs: "&".join(f"{k}={v}" for k, v in pairs))
visible = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
names = st.sampled_from(
    ["content-type", "idempotency-key", "x-extra", "x-wl-other", "x-wl-project"]
)
headers = st.dictionaries(names, visible, max_size=4)


class RawPath(SigV4Auth):
    """AWS's signer with the path as sent, as for its own object store."""

    def _normalize_url_path(self, path: str) -> str:
        return path

    def _modify_request_before_signing(self, request: AWSRequest) -> None:
        request.headers["x-amz-date"] = request.context["timestamp"]


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    paths,
    queries,
    headers,
    st.binary(max_size=64),
)
def test_our_form_with_the_prefix_of_aws_is_what_botocore_signs(method, path, query, given, body):
    url = f"http://127.0.0.1:7400{path}" + (f"?{query}" if query else "")
    request = AWSRequest(method, url, dict(given), body)
    request.context["timestamp"] = "20261115T085540Z"
    oracle = RawPath(Credentials(AK, SK), AWS.service, AWS.region)
    oracle._modify_request_before_signing(request)
    canonical = oracle.canonical_request(request)
    theirs = oracle.signature(oracle.string_to_sign(request, canonical), request)

    lines = {name.encode(): value.encode() for name, value in given.items()}
    lines |= {b"host": b"127.0.0.1:7400", b"x-amz-date": b"20261115T085540Z"}
    ours = signing.canonical_request(
        method.encode(),
        path.encode(),
        signing.sorted_query(query.encode()),
        sorted(lines.items()),
        hashlib.sha256(body).hexdigest().encode(),
    )
    assert ours.decode() == canonical
    assert signing.signature_of(AWS, SK, "20261115T085540Z", ours) == theirs


def arrive(method, url, given, body, /, **changed):
    """A signed request as a server sees it."""
    added = signing.sign(method, url, given, body, AK, SK, NOW)
    parts = signing.urlsplit(url)
    lines = {**{k.lower(): v for k, v in given.items()}, "host": parts.netloc}
    lines |= {name.lower(): value for name, value in added.items()}
    lines |= changed.pop("headers", {})
    authorization = lines.pop("authorization")
    seen = {
        "method": method,
        "path": (parts.path or "/").encode(),
        "query": parts.query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in lines.items()],
    }
    seen |= changed
    return signing.parse(authorization.encode()), signing.SignedParts(**seen)


def verified(claim, parts, body, secret=SK, now=NOW):
    checked = signing.check(claim, parts, now)
    return signing.verify(checked, secret, hashlib.sha256(body).hexdigest())


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["GET", "POST", "DELETE"]), paths, queries, headers, st.binary(max_size=64))
def test_what_is_signed_verifies_and_any_other_body_or_secret_does_not(
    method, path, query, given, body
):
    url = f"http://localhost:7400{path}" + (f"?{query}" if query else "")
    claim, parts = arrive(method, url, given, body)
    assert verified(claim, parts, body)
    assert not verified(claim, parts, body + b"x")
    assert not verified(claim, parts, body, secret=SK[:-1] + "x")


@pytest.mark.parametrize(
    "change",
    [
        {"method": "DELETE"},
        {"path": b"/api/v1/job"},
        {"path": b"/api/v1/jobs%2F"},
        {"query": b"a=1&b=3"},
        {"query": b""},
        {"headers": {"host": "evil:7400"}},
        {"headers": {"idempotency-key": "other"}},
        {"headers": {"content-type": "text/plain"}},
        {"headers": {"x-wl-nonce": "other"}},
        {"headers": {"x-wl-date": "20261115T085541Z"}},
    ],
    ids=str,
)
def test_a_change_on_the_way_is_seen(change):
    given = {"Content-Type": "application/json", "Idempotency-Key": "k"}
    claim, parts = arrive("POST", "http://h:7400/api/v1/jobs?a=1&b=2", given, b"{}", **change)
    assert not verified(claim, parts, b"{}")


@pytest.mark.parametrize(
    "name", ["content-type", "idempotency-key", "x-wl-anything", "x-wl-project"]
)
def test_a_header_that_means_something_must_be_signed(name):
    claim, parts = arrive("POST", "http://h/api", {}, b"", headers={name: "slipped in"})
    with pytest.raises(Unauthenticated, match=f"{name} must be signed"):
        verified(claim, parts, b"")


def test_the_query_may_be_signed_sorted_or_as_it_was_sent():
    url = "http://h/jobs?b=2&a=1&a=0"
    claim, parts = arrive("GET", url, {}, b"")
    assert verified(claim, parts, b"")
    signed = signing.check(claim, parts, NOW).headers
    request = signing.canonical_request(
        b"GET", b"/jobs", b"b=2&a=1&a=0", signed, signing.EMPTY_HASH.encode()
    )
    stamp = dict(signed)[b"x-wl-date"].decode()
    as_sent = signing.signature_of(signing.WINDLASS, SK, stamp, request)
    assert as_sent != claim.signature
    assert verified(claim._replace(signature=as_sent), parts, b"")


@pytest.mark.parametrize("away_ms, ok", [(299_000, True), (-299_000, True), (301_000, False),
                                         (-301_000, False), (86_400_000, False)])  # fmt: skip
def test_a_signature_lives_five_minutes_and_the_refusal_tells_the_time(away_ms, ok):
    claim, parts = arrive("GET", "http://h/jobs", {}, b"")
    if ok:
        assert verified(claim, parts, b"", now=NOW + away_ms)
        return
    with pytest.raises(ClockSkew) as refused:
        verified(claim, parts, b"", now=NOW + away_ms)
    assert refused.value.details["server_time_ms"] == NOW + away_ms


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"Basic YTpi",
        b"AWS4-HMAC-SHA256 Credential=AK/20261115/local/windlass/aws4_request, "
        b"SignedHeaders=host;x-wl-date, Signature=" + b"0" * 64,
        b"WL4-HMAC-SHA256 Credential=AK/20261115/eu/windlass/wl4_request, "
        b"SignedHeaders=host;x-wl-date, Signature=" + b"0" * 64,
        b"WL4-HMAC-SHA256 Credential=A\xff/20261115/local/windlass/wl4_request, "
        b"SignedHeaders=host, Signature=" + b"0" * 64,
        b"WL4-HMAC-SHA256 Credential=AK/20261115/local/windlass/wl4_request, "
        b"SignedHeaders=host;x-wl-date, Signature=" + b"0" * 63,
        b"WL4-HMAC-SHA256 " * 5000,
    ],
    ids=range(7),
)
def test_what_is_not_of_the_form_is_no_claim(header):
    assert signing.parse(header) is None


@pytest.mark.parametrize(
    "date",
    ["20261115", "2026-11-15T08:55:40Z", "20261315T085540Z", "20261115T255540Z", "\xff" * 16],
)
def test_a_malformed_date_is_refused_not_a_crash(date):
    claim, parts = arrive("GET", "http://h/jobs", {}, b"", headers={"x-wl-date": date})
    with pytest.raises(Unauthenticated):
        verified(claim, parts, b"")


def test_two_equal_changing_calls_in_one_second_have_two_signatures():
    first, second = (
        signing.sign("POST", "http://h/jobs", {}, b"{}", AK, SK, NOW)["Authorization"]
        for _ in range(2)
    )
    assert first != second
    read = [signing.sign("GET", "http://h/jobs", {}, b"", AK, SK, NOW) for _ in range(2)]
    assert read[0] == read[1]

"""Secrets in output become `***`: in every form, wherever the stream is cut."""

from __future__ import annotations

import ast
import base64
import json
import time
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from windlass.worker import masking
from windlass.worker.logs import Stream as LogStream
from windlass.worker.masking import Masker, Stream, forms_of, masker_of
from windlass.worker.pump import Channel

TOKEN = "hf_aB3/xY+9 zQ=%"
PEM = "-----BEGIN KEY-----\nMIIEowIBAAKCAQEA\nshort\n7cXk29QmYw\n-----END KEY-----\n"


def masked(values: list[str], *pieces: bytes) -> bytes:
    stream = Masker(values).stream()
    return b"".join([*(stream.feed(piece) for piece in pieces), stream.end()])


@pytest.mark.parametrize(
    "form",
    [
        TOKEN,
        quote(TOKEN),
        quote(TOKEN, safe=""),
        quote_plus(TOKEN),
        quote(TOKEN, safe="").lower().replace("hf_ab3", "hf_aB3").replace("xy", "xY").replace(
            "zq", "zQ"
        ),
        json.dumps(TOKEN)[1:-1],
        repr(TOKEN)[1:-1],
        base64.b64encode(TOKEN.encode()).decode(),
        base64.urlsafe_b64encode(TOKEN.encode()).decode(),
        base64.b64encode(b"user:" + TOKEN.encode()).decode(),
        base64.b64encode(b"u:" + TOKEN.encode() + b" and more").decode(),
    ],
)  # fmt: skip
def test_every_form_of_a_value_is_masked(form: str) -> None:
    out = masked([TOKEN], b"before " + form.encode() + b" after")
    assert b"***" in out
    assert out.startswith(b"before ") and out.endswith(b" after")
    middle = form[4:-6].encode()
    assert middle not in out


def test_values_of_other_alphabets_and_of_several_lines_are_masked() -> None:
    assert masked(["pässwörd-🔑"], "x pässwörd-🔑 y".encode()) == b"x *** y"
    assert masked(["pässwörd-🔑"], json.dumps("pässwörd-🔑").encode()) == b'"***"'
    out = masked([PEM], b"line: MIIEowIBAAKCAQEA\nand 7cXk29QmYw.\n")
    assert out == b"line: ***\nand ***.\n"
    assert masked([PEM], PEM.encode()).replace(b"\n", b"") == b"***"
    assert b"short" not in masked([PEM], PEM.encode())
    assert b"MIIE" not in masked([PEM], repr(PEM).encode())


@pytest.mark.parametrize("at", range(1, len(TOKEN)))
def test_a_value_that_is_split_over_two_writes_is_masked(at: int) -> None:
    raw = TOKEN.encode()
    assert masked([TOKEN], b"a " + raw[:at], raw[at:] + b" b") == b"a *** b"


def test_a_value_in_single_bytes_is_masked() -> None:
    raw = b"x" + TOKEN.encode() + b"y" + TOKEN.encode()
    assert masked([TOKEN], *(raw[at : at + 1] for at in range(len(raw)))) == b"x***y***"


def test_what_only_begins_like_a_secret_comes_through() -> None:
    assert masked(["secret-value"], b"secret-", b"other") == b"secret-other"
    stream = Masker(["secret-value"]).stream()
    assert stream.feed(b"plain\nsecr") == b"plain\n"
    assert stream.end() == b"secr"


@settings(max_examples=400, deadline=None)
@given(
    forms=some.lists(some.text("ab", min_size=2, max_size=6), min_size=1, max_size=4),
    text=some.text("abx", max_size=60),
    cuts=some.lists(some.integers(1, 9), max_size=30),
)
def test_all_and_only_secrets_are_taken_out(forms: list[str], text: str, cuts: list[int]) -> None:
    """Against a slow and plain way to say what is covered."""
    raw, given_forms = text.encode(), [form.encode() for form in forms]
    covered = [False] * len(raw)
    for form in given_forms:
        for at in range(len(raw) - len(form) + 1):
            if raw[at : at + len(form)] == form:
                covered[at : at + len(form)] = [True] * len(form)
    stream, out, at = Stream(given_forms), b"", 0
    for size in [*cuts, len(raw)]:
        out += stream.feed(raw[at : at + size])
        assert len(stream._held) < max(map(len, given_forms)), "no more than a form is held"
        at += size
    out += stream.end()
    kept = bytes(byte for byte, gone in zip(raw, covered, strict=True) if not gone)
    assert out.replace(b"***", b"") == kept
    assert (b"***" in out) == any(covered)


def test_the_pump_masks_across_segments_and_rate_limit(tmp_path: Path) -> None:
    """Bytes go through the mask before the stream cuts, holds or drops any of them."""
    log = LogStream(str(tmp_path), "rank", rate=10_000)
    channel = Channel(0, -1, log, keep_tail=True, mask=Masker([TOKEN]).stream())
    line = b"the token is " + TOKEN.encode() + b", now you know" + b"." * 60 + b"\n"
    for _ in range(40_000):
        channel.take(memoryview(line[:20]))
        channel.take(memoryview(line[20:]))
    channel.close()
    text = b"".join(path.read_bytes() for path in sorted(tmp_path.glob("*.log")))
    assert text.count(b"***") > 1000
    assert b"dropped" in text, "the rate limit had something to do"
    for piece in (TOKEN.encode(), TOKEN.encode()[:12], TOKEN.encode()[-8:]):
        assert piece not in text
        assert piece not in bytes(channel.tail or b"")


def test_without_secrets_nothing_is_masked_and_nothing_costs() -> None:
    assert masker_of(None) is None
    assert masker_of({}) is None
    assert masker_of({"SHORT": "abc"}) is None, "three characters are everywhere"
    assert forms_of("abc") == set()


def test_masking_keeps_up_with_a_flood() -> None:
    stream = Masker(["hf_0123456789abcdefghijklmnopqrstuv", "AKIAIOSFODNN7EXAMPLE"]).stream()
    block = (b"step 12 loss 0.1234 some ordinary line of output\n" * 22_000)[: 1 << 20]
    rate = 0.0
    for _ in range(5):  # the best: others of this machine share its caches
        began = time.process_time()
        for _ in range(10):
            stream.feed(block)
        rate = max(rate, 10 * len(block) / (time.process_time() - began))
    assert rate > 50e6, f"{rate / 1e6:.0f} MB/s"


def test_what_is_reported_is_masked_and_stays_what_it_is() -> None:
    masker = Masker([TOKEN, "local", "succeeded", "rank"])
    body = {
        "record": {"node": "local", "outcome": "succeeded", "reason": f"it {TOKEN} succeeded"},
        "notes": [{"kind": "hung", "rank": 3, "stacks": [{"text": f"x={TOKEN}"}]}],
        "lines": [{"kind": "metric", "values": {TOKEN: 1.5}}],
    }
    assert masker.value(body) == {
        "record": {"node": "local", "outcome": "succeeded", "reason": "it *** ***"},
        "notes": [{"kind": "hung", "rank": 3, "stacks": [{"text": "x=***"}]}],
        "lines": [{"kind": "metric", "values": {"***": 1.5}}],
    }
    assert masker.text("no secret here") == "no secret here"


def test_the_module_is_python_38_and_of_the_standard_library_alone() -> None:
    source = Path(masking.__file__).read_text()
    ast.parse(source, feature_version=(3, 8))

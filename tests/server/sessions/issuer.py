"""A small OpenID issuer: a process of its own, real HTTP, real keys. It lies when it is told to.

    python issuer.py PORT_FILE

Who logs in, and how the token it gets is wrong, is said by `POST /behave` with JSON:

    {"claims": {...}, "drop": ["nonce"], "header": {...}, "sign": "none | secret | public | …"}
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT, SECRET = "windlass", "issuer-secret"


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class Issuer:
    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.kid = "first"
        self.behaviour: dict[str, Any] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.url = ""
        self.asked = {"keys": 0, "token": 0}

    def rotate(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.kid = "second"

    def about(self) -> dict[str, Any]:
        return {
            "issuer": self.behaviour.get("issuer", self.url),
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
        }

    def keys(self) -> dict[str, Any]:
        self.asked["keys"] += 1
        numbers = self.key.public_key().public_numbers()
        own = {
            "kty": "RSA", "kid": self.kid, "use": "sig", "alg": "RS256",
            "n": number(numbers.n), "e": number(numbers.e),
        }  # fmt: skip
        shared = {"kty": "oct", "kid": "shared", "k": b64(b"a secret of at least 32 bytes....")}
        return {"keys": [own, shared]}

    def authorize(self, asked: dict[str, str]) -> str:
        """The address to go back to. The user is logged in already."""
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        back = {"code": code, "state": asked["state"], "session_state": "x", "iss": self.url}
        return asked["redirect_uri"] + "?" + urlencode(back)

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        self.asked["token"] += 1
        given = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        if given != f"{CLIENT}:{SECRET}":
            return 401, {"error": "invalid_client"}
        asked = self.codes.get(form.get("code", ""))
        if asked is None:
            return 400, {"error": "invalid_grant"}
        if not self.behaviour.get("codes_twice"):
            del self.codes[form["code"]]
        challenge = b64(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if challenge != asked.get("code_challenge"):
            return 400, {"error": "invalid_grant", "error_description": "PKCE"}
        access = secrets.token_urlsafe(16)
        return 200, {
            "access_token": access, "token_type": "Bearer", "expires_in": 300,
            "id_token": self.id_token(asked.get("nonce", "")),
        }  # fmt: skip

    def id_token(self, nonce: str) -> str:
        behave = self.behaviour
        now = int(time.time())
        claims = {
            "iss": self.url, "sub": "subject-1", "aud": CLIENT, "exp": now + 300, "iat": now,
            "nonce": nonce, "email": "anna@example.org", "email_verified": True,
            **behave.get("claims", {}),
        }  # fmt: skip
        for name, seconds in behave.get("moments", {}).items():
            claims[name] = now + seconds
        for name in behave.get("drop", ()):
            claims.pop(name, None)
        how = behave.get("sign", "own")
        header = {"alg": "RS256", "typ": "JWT", "kid": self.kid, **behave.get("header", {})}
        for name in [name for name, value in header.items() if value is None]:
            del header[name]
        if behave.get("bring_key"):
            numbers = self.stranger.public_key().public_numbers()
            header["jwk"] = {"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)}
        text = b64(json.dumps(header).encode()) + "." + b64(json.dumps(claims).encode())
        return text + "." + b64(self.signature(how, text.encode()))

    def signature(self, how: str, text: bytes) -> bytes:
        if how == "none":
            return b""
        if how == "broken":
            return b"\0" * 256
        if how == "secret":  # HS256 with what the client and the issuer share
            return hmac.digest(SECRET.encode(), text, "sha256")
        if how == "shared":
            return hmac.digest(b"a secret of at least 32 bytes....", text, "sha256")
        if how in ("public", "public-der"):  # HS256 with the public key as the secret
            encoding = {
                "public": serialization.Encoding.PEM, "public-der": serialization.Encoding.DER,
            }[how]  # fmt: skip
            raw = self.key.public_key().public_bytes(
                encoding, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            return hmac.digest(raw, text, "sha256")
        key = self.stranger if how == "stranger" else self.key
        return key.sign(text, padding.PKCS1v15(), hashes.SHA256())


class Handler(BaseHTTPRequestHandler):
    issuer: Issuer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/.well-known/openid-configuration":
            self.answer(200, self.issuer.about())
        elif parts.path == "/keys":
            self.answer(200, self.issuer.keys())
        elif parts.path == "/authorize":
            asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
            self.send_response(302)
            self.send_header("Location", self.issuer.authorize(asked))
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif parts.path == "/asked":
            self.answer(200, self.issuer.asked)
        else:
            self.answer(404, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/token":
            form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            self.answer(*self.issuer.token(form, self.headers.get("Authorization", "")))
        elif self.path == "/behave":
            self.issuer.behaviour = json.loads(body)
            if self.issuer.behaviour.get("rotate"):
                self.issuer.rotate()
            self.answer(200, {})

    def answer(self, status: int, value: Any) -> None:
        raw = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.issuer = Issuer()
    Handler.issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
    Path(sys.argv[1]).with_suffix(".new").write_text(Handler.issuer.url)
    Path(sys.argv[1]).with_suffix(".new").rename(sys.argv[1])
    server.serve_forever()


if __name__ == "__main__":
    main()

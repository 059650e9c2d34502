"""Keys and tokens from the user's side. Secrets are in the answer that makes them, and nowhere
else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.client.http import Http, path_of

Data = dict[str, Any]


class Keys:
    """Access keys. `user` is another: a service account of the project, or, for administrators,
    anybody."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self, user: str | None = None) -> list[Data]:
        """Access keys without their secrets: one's own, or another's."""
        return list(self._http.get("/keys", {"user": user})["items"])

    def create(self, name: str | None = None, *, user: str | None = None) -> Data:
        """`access_key` and `secret_key`; the latter is told here and never again."""
        body = {"name": name, "user": user}
        answer: Data = self._http.call("POST", "/keys", body=body)
        return answer

    def revoke(self, access_key: str) -> None:
        """From now on nothing signed with this key is believed."""
        self._http.call("DELETE", path_of("keys", access_key))

    def rotate(self, access_key: str, *, overlap: str | None = None) -> Data:
        """A new key in place of this one, which goes on for `overlap` (a day) and then dies."""
        body = {} if overlap is None else {"overlap": overlap}
        path = path_of("keys", access_key, "rotate")
        answer: Data = self._http.call("POST", path, body=body)
        return answer

    def rekey(self, *, drop_old: bool = False) -> Data:
        """Replace the key that the server seals all secrets with."""
        answer: Data = self._http.call(
            "POST", "/rekey", body={"drop_old": drop_old}, timeout_seconds=600
        )
        return answer


class Tokens:
    """Bearer tokens: of one project, narrowed to scopes, for a time."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self, user: str | None = None) -> list[Data]:
        """API tokens without their secrets: one's own, or another's."""
        return list(self._http.get("/tokens", {"user": user})["items"])

    def create(
        self,
        name: str,
        *,
        scopes: Sequence[str] = ("write",),
        expires: str | None = None,
        user: str | None = None,
    ) -> Data:
        """`token` is told here and never again. Scopes: read, write, or single rights."""
        body: Data = {"name": name, "scopes": list(scopes), "user": user}
        if expires is not None:
            body["expires"] = expires
        answer: Data = self._http.call("POST", "/tokens", body=body)
        return answer

    def revoke(self, ref: str, *, user: str | None = None) -> None:
        """By its id, or by name where one has it."""
        self._http.call("DELETE", path_of("tokens", ref), query={"user": user})

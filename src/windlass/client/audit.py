"""The audit log from the user's side: who did what, and the proof that nobody changed it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from windlass.client.http import Http

if TYPE_CHECKING:
    from windlass.core.audit import Verdict


class Audit:
    """`chain` is `project` (the client's own) or `server` (what is about all of it)."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self, *, limit: int = 50, chain: str = "project", **filters: Any) -> list[Any]:
        """Newest first. Filters: `user`, `action`, `object`, `outcome`, `since`, `until`."""
        found: list[Any] = []
        before: str | None = None
        while len(found) < limit:
            query = {**filters, "chain": chain, "before": before}
            page = self._http.get("/audit", {**query, "limit": min(1000, limit - len(found))})
            found += page["items"]
            before = page["next"]
            if before is None:
                break
        return found

    def get(self, number: int, *, chain: str = "project") -> dict[str, Any]:
        found: dict[str, Any] = self._http.get(f"/audit/{number}", {"chain": chain})
        return found

    def head(self, *, chain: str = "project") -> dict[str, Any]:
        """The last number and hash, and those that the server noted outside its database."""
        found: dict[str, Any] = self._http.get("/audit/head", {"chain": chain})
        return found

    def export(self, *, chain: str = "project", format: str = "jsonl", **which: Any) -> Any:
        """The lines of an export, as they come: rows as JSON, or CSV."""
        yield from self._http.text("/audit/export", {**which, "chain": chain, "format": format})

    def rows(self, *, chain: str = "project", **which: Any) -> Iterator[dict[str, Any]]:
        for line in self.export(chain=chain, **which):
            yield json.loads(line)

    def verify(self, *, chain: str = "project", heads: dict[int, str] | None = None) -> Verdict:
        """Walk the whole chain here, and hold it to the server's own note and to `heads`."""
        about = self.head(chain=chain)
        kept = {int(about["noted_number"]): str(about["noted_hash"])}
        kept |= {int(each["number"]): str(each["hash"]) for each in about["lost"]}
        kept.pop(0, None)
        from windlass.core.audit import verify  # pydantic: only for who wants the proof

        return verify(self.rows(chain=chain), {**kept, **(heads or {})})

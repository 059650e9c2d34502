"""One call of an MLflow client, as its handler sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json
from starlette.datastructures import QueryParams
from starlette.requests import Request

from windlass.core.access import Principal
from windlass.server.access.calls import spend
from windlass.server.http import exchange
from windlass.server.mlflow.errors import MlflowError, invalid

if TYPE_CHECKING:  # it imports the whole server, and tests make an `Asked` without one
    from windlass.server.parts import Parts


@dataclass(slots=True)
class Asked:
    parts: Parts
    who: Principal
    project: str
    """The project's name, as the path says it."""
    request: Request
    params: dict[str, str] = field(default_factory=dict)
    """What the endpoint's template names in the path."""
    attempt: int = 0
    """The number of the attempt whose token calls; 0: a user's."""

    @property
    def project_id(self) -> str:
        return self.who.project_id

    @property
    def now_ms(self) -> int:
        return self.parts.clock.now_ms()

    @property
    def query(self) -> QueryParams:
        return self.request.query_params

    async def audit(self, action: str, about: str) -> None:
        """Write the call's row of the audit log, before what it tells is done in the other
        database: nothing is done that is not written."""
        call = exchange.of(self.request.scope).call
        if call is not None:
            await self.parts.store.write(
                lambda conn: spend(conn, call, about=about, action=action)
            )

    async def json(self) -> dict[str, Any]:
        """The body; {} where there is none, or where it is no object, as MLflow reads it."""
        body = await self.request.body()
        if not body:
            return {}
        if b"\\u0000" in body:
            raise invalid("Text without the character NUL is needed.")
        try:
            value = from_json(body, allow_inf_nan=True)
        except ValueError as error:
            raise MlflowError("BAD_REQUEST", f"The body is not JSON: {error}") from None
        if isinstance(value, str):  # some clients encode twice, and MLflow takes it
            try:
                value = from_json(value)
            except ValueError:
                value = None
        if not isinstance(value, dict):
            raise MlflowError("BAD_REQUEST", "The body is no JSON object.")
        return value

    async def fields(self, *lists: str) -> dict[str, Any]:
        """The request's fields, of its query (GET) or of its body. `lists`: those of which a
        query may have several."""
        if self.request.method != "GET" or not self.request.url.query:
            return await self.json()
        query = self.query
        if "%00" in self.request.url.query:
            raise invalid("Text without the character NUL is needed.")
        return {name: query.getlist(name) if name in lists else query[name] for name in query}

"""/api/v1/rekey: replace the key that all secrets of the server are sealed with."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from windlass.core.access import Right
from windlass.core.users import RekeyAnswer, RekeyBody
from windlass.server.access.calls import Call, spend
from windlass.server.access.rekey import Sealed, rekey
from windlass.server.access.tables import keys
from windlass.server.http.body import json_body
from windlass.server.http.marks import require
from windlass.server.jobs.tables import attempts
from windlass.server.parts import Wired
from windlass.server.secrets.service import bound
from windlass.server.secrets.tables import secrets

router = APIRouter(prefix="/api/v1", tags=["server"])

SEALED = (
    Sealed(keys, "secret", lambda row: (row.access_key, row.project_id, str(row.version))),
    Sealed(attempts, "tokens", lambda row: ("attempt", row.id), where=attempts.c.state != "over"),
    Sealed(
        secrets, "sealed", lambda row: bound(row.project_id, row.owner_id, row.name, row.version)
    ),
)
"""Every table with a column `kek`."""


@router.post("/rekey", response_model=RekeyAnswer)
async def replace(
    call: Annotated[Call, Depends(require(Right.SERVER_WRITE))],
    parts: Wired,
    body: Annotated[RekeyBody, Depends(json_body(RekeyBody))],
) -> RekeyAnswer:
    """Make a new key-encryption key and seal every secret anew with it; the old one still opens.
    With `drop_old` take those that are needed no more out of the file: some minutes later, when
    every server has seen the new one."""
    await parts.store.write(lambda conn: spend(conn, call))
    sealer = parts.access.sealer
    done = await rekey(
        parts.store, sealer, parts.settings.home / "kek", SEALED, drop_old=body.drop_old
    )
    return RekeyAnswer(kek=sealer.kek, rewrapped=done, kept=sealer.keks[1:])

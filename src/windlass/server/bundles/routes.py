"""/api/v1/bundles and /api/v1/blobs: code on its way to a job."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response
from sqlalchemy import Connection

from windlass.core.access import Right
from windlass.server.access.calls import Call, spend
from windlass.server.bundles import service
from windlass.server.bundles.service import BundleAnswer, Manifest
from windlass.server.http.body import byte_stream, json_body
from windlass.server.http.marks import require
from windlass.server.http.openapi import OCTETS
from windlass.server.parts import Wired

router = APIRouter(prefix="/api/v1", tags=["bundles"])


@router.post("/bundles", response_model=BundleAnswer)
async def record(
    call: Annotated[Call, Depends(require(Right.BUNDLE_WRITE))],
    parts: Wired,
    body: Annotated[Manifest, Depends(json_body(Manifest))],
) -> BundleAnswer:
    """Name the files of a bundle; complete once `missing` is empty."""
    now = parts.clock.now_ms()

    def write(conn: Connection) -> BundleAnswer:
        spend(conn, call)
        return service.record(conn, call.principal.project_id, body, parts.blobs, now)

    return await parts.store.write(write)


@router.put(
    "/blobs/{digest}",
    status_code=204,
    openapi_extra={"requestBody": {"required": True, "content": {OCTETS: {}}}},
)
async def put_blob(
    call: Annotated[Call, Depends(require(Right.BUNDLE_WRITE, stream=True, repeatable=True))],
    parts: Wired,
    request: Request,
    digest: Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")],
) -> Response:
    """The bytes of one file, refused unless they hash to their name."""
    blobs = parts.blobs.of(call.principal.project_id)
    await blobs.put(digest, byte_stream(request), parts.settings.artifact_bytes)
    return Response(status_code=204)

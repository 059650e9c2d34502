"""What a client asks of the server itself."""

from __future__ import annotations

from typing import Any

from starlette.responses import PlainTextResponse, Response

from windlass.server.mlflow.asked import Asked

SPEAKS = "3.17.2"
"""The version of MLflow whose wire this is."""


async def health(asked: Asked) -> Response:
    return PlainTextResponse("OK")


async def version(asked: Asked) -> Response:
    return PlainTextResponse(SPEAKS)


async def server_info(asked: Asked) -> dict[str, Any]:
    return {
        "store_type": "SqlStore",
        "workspaces_enabled": False,
        "trace_archival_enabled": False,
        "multipart_uploads_enabled": False,
        "multipart_downloads_enabled": False,
        "presigned_upload_run_id_supported": False,
        "presigned_upload_model_id_supported": False,
        "features_enabled": {"gateway": False},
    }

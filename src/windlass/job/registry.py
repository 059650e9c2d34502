"""Telling the server about a checkpoint: now it counts, or the attempt is refused."""

from __future__ import annotations

import json
from http.client import HTTPException
from typing import Any, Dict, Tuple
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from windlass.job.context import Context
from windlass.job.log import note
from windlass.job.manifest import Checkpoint, CheckpointError
from windlass.job.spool import say

_TIMEOUT_SECONDS = 5.0


class CheckpointFenced(CheckpointError):
    """This attempt is over: a newer one of the same job owns the checkpoints. Leave."""


KNOWN = "known"
MANAGED = "managed"
"""Known, and the server removes old ones by its own rules: it knows who starts from which."""
UNKNOWN = "unknown"


def register(here: Context, checkpoint: Checkpoint) -> str:
    """Register, and say whether the server now knows.

    Raises `CheckpointFenced` when the attempt is over. When the server cannot be reached, a note
    in the spool lets the worker register later, and training goes on.
    """
    if not here.url:
        return KNOWN  # Off the platform there is nobody to tell, and nobody to be fenced by.
    status, answer = _post(here, checkpoint)
    if status in (200, 201, 204):
        return MANAGED if answer == MANAGED else KNOWN
    if status in (401, 409):
        raise CheckpointFenced(
            "checkpoint of step %d refused: attempt %d of this job is over (%s); "
            "save nothing more and end" % (checkpoint.step, checkpoint.attempt, answer)
        )
    if status and status < 500:
        say("the server did not take the checkpoint of step %d: %s" % (checkpoint.step, answer))
    note("checkpoint", **_words(here, checkpoint))
    return UNKNOWN


def _post(here: Context, checkpoint: Checkpoint) -> Tuple[int, str]:
    """The status and the server's words; status 0 when there was no answer."""
    request = Request(
        here.url + "/api/v1/run/checkpoints",
        data=json.dumps(_words(here, checkpoint)).encode("utf-8"),
        headers={"Authorization": "Bearer " + here.token, "Content-Type": "application/json"},
        method="POST",
    )
    try:
        # No proxy: the address was given to this very machine, and is often loopback.
        with build_opener(ProxyHandler({})).open(request, timeout=_TIMEOUT_SECONDS) as response:
            return int(response.status), _managed(response.read(65536))
    except HTTPError as error:
        with error:
            return error.code, _explanation(error)
    except (OSError, HTTPException) as error:
        return 0, str(error)


def _words(here: Context, checkpoint: Checkpoint) -> Dict[str, Any]:
    """One that its worker must send first is only asked about: may this attempt still save?"""
    words = checkpoint.to_wire()
    return {**words, "mirrored": True} if here.mirrored else words


def _managed(answer: bytes) -> str:
    try:
        return MANAGED if json.loads(answer.decode("utf-8"))["managed"] is True else ""
    except (ValueError, KeyError, TypeError):
        return ""


def _explanation(error: HTTPError) -> str:
    try:
        return str(json.loads(error.read(65536).decode("utf-8"))["error"]["message"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return "status %d" % error.code

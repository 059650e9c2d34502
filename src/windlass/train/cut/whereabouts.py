"""Where in a user's code something failed, in words."""

from __future__ import annotations

import traceback
from pathlib import Path

import torch

_NOT_THEIRS = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


def where_it_failed(error: BaseException) -> str:
    """File, line and the line's text of the innermost frame that is neither torch's nor ours."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if not frame.filename.startswith((*_NOT_THEIRS, "<")):
            text = f": `{frame.line}`" if frame.line else ""
            return f"{Path(frame.filename).name}, line {frame.lineno}, in {frame.name}{text}"
    return "its forward"


def said(error: BaseException) -> str:
    """What torch said, without the advice that is meant for its own callers."""
    text = str(error).strip() or type(error).__name__
    first = text.splitlines()[0]
    if "cannot be used as inputs to control flow" in first:
        return "what happens next depends on the values of a tensor"
    if "cannot be iterated" in first:
        return "it loops over a value that is only known when it runs"
    return first

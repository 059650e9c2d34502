"""Files of a run as the API shows them."""

from __future__ import annotations

from windlass.core.strict import Count, Strict


class ArtifactView(Strict):
    """A file, or a folder with files somewhere below it."""

    path: str
    folder: bool
    size: Count
    """Of a folder: of all files below it."""
    digest: str | None = None
    changed: str | None = None


class ArtifactPage(Strict):
    run: str
    items: tuple[ArtifactView, ...]

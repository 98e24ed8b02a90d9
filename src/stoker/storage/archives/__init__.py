"""Opens what lies in an archive."""

from typing import Any

from stoker.storage.archives.archive import Archive
from stoker.storage.origins import Origin, open_origin

__all__ = ["open_url"]


def open_url(url: str, way: dict[str, Any] | None = None) -> Origin:
    """Return the origin of a URL, of an archive's members, too. way: to the trainer, for folders of its
    machine. Raises OriginError; ImportError if a library is missing."""
    kind, mark, _ = url.partition("::")
    if mark and kind.partition("://")[0].lower() in ("zip", "tar"):
        return Archive(url, lambda outer: open_url(outer, way))
    return open_origin(url, way)

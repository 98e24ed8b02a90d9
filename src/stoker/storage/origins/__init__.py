"""Opens the origin of a URL."""

import ssl
from typing import Any

from stoker.storage.origins.origin import (
    UNKNOWN,
    Again,
    Answer,
    Changed,
    Damaged,
    Denied,
    Entry,
    Get,
    Missing,
    OpenOrigin,
    Origin,
    OriginError,
    Piece,
    Source,
    difference,
    shown,
)

__all__ = [
    "UNKNOWN",
    "Again",
    "Answer",
    "Changed",
    "Damaged",
    "Denied",
    "Entry",
    "Get",
    "Missing",
    "OpenOrigin",
    "Origin",
    "OriginError",
    "Piece",
    "Source",
    "difference",
    "open_origin",
    "shown",
    "tls_context",
]


def tls_context() -> "ssl.SSLContext":
    """Return what checks servers' certificates."""
    from stoker.storage.origins import web

    return web.tls_context()


def open_origin(url: str, way: dict[str, Any] | None = None) -> Origin:
    """Return the origin of a URL. way: to the trainer, for folders of its machine. Raises OriginError;
    ImportError if a library is missing."""
    scheme = url.partition("::")[0].partition("://")[0].lower()
    if scheme == "host" and way is not None:
        from stoker.storage.origins.host import Host

        return Host(url, way)
    if scheme in ("http", "https"):
        from stoker.storage.origins.http import Http

        return Http(url)
    if scheme in ("s3", "s3a"):
        from stoker.storage.origins.s3 import S3

        return S3(url)
    from stoker.storage.origins.generic import Generic

    return Generic(url)

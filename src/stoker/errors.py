"""Defines every error that stoker raises, split by who is to blame.

    StokerError
    +-- ConfigError         you: a flag, variable or table entry that is invalid
    +-- ClusterUnavailable  the world: nothing answers where --cluster says
    +-- StorageUnavailable  the world: what --mount names does not answer
    +-- BrokenGuarantee     us: please report it

A dead worker and a failing sample are torch's own RuntimeError and the dataset's own error.
Each `slug` is a heading in docs/errors.md. Pure.
"""

DOCS = "docs/errors.md"


class StokerError(Exception):
    slug = "error"


class ConfigError(StokerError, ValueError):
    """An invalid setting: says which, what was given and what would be valid."""

    slug = "config"


class ClusterUnavailable(StokerError):
    """No cluster answers at the address that was given."""

    slug = "cluster-unavailable"


class StorageUnavailable(StokerError):
    """The origin of a mount does not answer, or cannot be listed."""

    slug = "storage-unavailable"


class BrokenGuarantee(StokerError):
    """An event that must not happen: a bug in stoker."""

    slug = "bug"

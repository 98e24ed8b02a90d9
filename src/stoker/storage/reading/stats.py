"""Counts what a storage process reads, and from where. Pure."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class StorageStats:
    """Totals since the start. Bytes that were read, by where they came from: memory and disk, where they
    had been kept; the origin, and of that ahead_nbytes before somebody asked. What the kernel keeps of
    files is read without us, and not counted.

    wait_s: that reads of the script's processes waited for the origin, added up."""

    memory_nbytes: int = 0
    disk_nbytes: int = 0
    peer_nbytes: int = 0
    remote_nbytes: int = 0
    ahead_nbytes: int = 0
    num_requests: int = 0
    num_listed: int = 0  # folders
    num_retries: int = 0
    num_damaged: int = 0  # blocks found damaged in memory or on disk, and fetched again
    num_reads: int = 0
    num_waits: int = 0  # of them waited for the origin
    wait_s: float = 0.0
    kept_nbytes: int = 0  # in memory now
    disk_kept_nbytes: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

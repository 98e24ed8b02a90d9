"""Starts the process that serves a run's mounts, before anything else of the run begins."""

from stoker.config import FILES_FRAC, Settings
from stoker.errors import ConfigError

LEAST_NBYTES = 64 << 20  # what is on its way at 1 Gbit/s, and read-ahead of some files


def start_storage(settings: Settings, who: str) -> str:
    """Return what config.STORAGE is to be set to. who: asked for mounts.

    Raises ConfigError, StorageUnavailable.
    """
    from importlib.util import find_spec

    from stoker.cli.checks.services import needs
    from stoker.local.sizing import CACHE_FRAC_OF_FREE, available_nbytes
    from stoker.storage.mounting.launch import NEEDED, launch

    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigError(needs(who, missing, "storage"))

    assert settings.mount is not None
    nbytes = settings.cache_memory
    if nbytes is None:
        nbytes = int(available_nbytes() * CACHE_FRAC_OF_FREE)
    files_nbytes = max(int(nbytes * FILES_FRAC), LEAST_NBYTES)
    return launch(settings.mount, files_nbytes, settings.cache_disk, settings.cache_keep)

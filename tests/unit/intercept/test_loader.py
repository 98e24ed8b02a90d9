"""What a loader wants of the shelf of remembered samples: intercept/loader.py."""

from stoker.config import Settings
from stoker.intercept import loader, run


def test_ranks_of_a_machine_share_what_is_remembered(monkeypatch):
    monkeypatch.setattr(run, "settings", Settings(cache_memory=8 << 20))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert loader._cache_nbytes() == 8 << 20
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert loader._cache_nbytes() == 2 << 20

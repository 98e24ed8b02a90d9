"""Where machine code is kept."""

import pytest

from stoker import compiled


def test_machine_code_is_kept_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled._numba_config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compiled._folder() == str(tmp_path / "stoker" / "kernels")


def test_numbas_own_setting_wins(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled._numba_config, "CACHE_DIR", str(tmp_path))
    assert compiled._folder() == str(tmp_path)


@pytest.mark.parametrize("nowhere", ["/proc/nowhere", "relative/path"])
def test_where_nothing_can_be_kept_nothing_is(monkeypatch, tmp_path, nowhere):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compiled._numba_config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", nowhere)
    assert compiled._folder() is None

"""Where a command's settings are found, and what is said of names that are none."""

import os

import pytest

from stoker.cli.settings import check_variables, find, from_pyproject
from stoker.config import Settings
from stoker.errors import ConfigError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home of its own, and a project in it that is the current folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "project" / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def put(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return str(file)


def test_without_a_file_every_setting_has_its_default():
    assert find({}, {}) == (Settings(), {}, [])


def test_the_table_of_a_pyproject_is_read_as_text(home):
    file = put(
        home / "project" / "pyproject.toml",
        '[tool.stoker]\nworkers = 3\nhash-batches = true\nchains = "auto"\nquiet = false\n',
    )
    assert find({}, {}) == (
        Settings(workers=3, hash_batches=True, chains="auto"),
        {name: f"[tool.stoker] {name}" for name in ("chains", "workers", "quiet", "hash_batches")},
        [file],
    )


def test_the_nearest_pyproject_upwards_that_has_a_table_is_read(home, monkeypatch):
    put(home / "pyproject.toml", "[tool.stoker]\nworkers = 1\n")
    nearer = put(home / "project" / "pyproject.toml", "[tool.stoker]\nworkers = 2\n")
    put(home / "project" / "deep" / "pyproject.toml", "[tool.other]\nworkers = 3\n")
    monkeypatch.chdir(home / "project" / "deep" / "er")
    assert find({}, {}).settings.workers == 2
    assert find({}, {}).files == [nearer]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
def test_a_strangers_pyproject_above_the_folder_is_not_read(home, monkeypatch):
    strange = put(home / "pyproject.toml", '[tool.stoker]\ncluster = "evil:6379"\n')
    assert find({}, {}).settings.cluster == "evil:6379"
    os.chown(strange, 12345, -1)
    assert find({}, {}).settings.cluster is None
    monkeypatch.chdir(home)  # where one works, one knows what lies
    assert find({}, {}).settings.cluster == "evil:6379"


def test_the_users_file_says_what_no_project_does(home):
    user = put(home / "config" / "stoker" / "config.toml", 'workers = 5\nmemory = "2G"\n')
    project = put(home / "project" / "pyproject.toml", "[tool.stoker]\nworkers = 2\n")
    settings, origins, files = find({}, {"XDG_CONFIG_HOME": str(home / "config")})
    assert (settings.workers, settings.memory) == (2, 2 << 30)
    assert origins["memory"] == "stoker/config.toml memory"
    assert files == [project, user]


@pytest.mark.parametrize("text", ["", "[tool.other]\nworkers = 3\n", "# [tool.stoker]\n"])
def test_a_pyproject_without_our_table_says_nothing(home, text):
    put(home / "project" / "pyproject.toml", text)
    assert from_pyproject(str(home / "project")) == ("", {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.stoker]\nwokers = 3\n", r"pyproject.toml: \[tool.stoker\] has no setting 'wokers' \(did you mean workers\?\)"),
        ("[tool.stoker]\nx = 3\n", "no setting 'x'$"),
        ("[tool.stoker]\nworkers = = 3\n", "pyproject.toml: "),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_names_the_file(home, text, said):
    put(home / "project" / "pyproject.toml", text)
    with pytest.raises(ConfigError, match=said):
        find({}, {})


def test_a_users_file_that_cannot_be_is_named(home):
    file = put(home / "config" / "stoker" / "config.toml", "wokers = 5\n")
    with pytest.raises(ConfigError, match=f"{file} has no setting 'wokers'"):
        find({}, {"XDG_CONFIG_HOME": str(home / "config")})


def test_a_variable_that_is_nearly_a_settings_ends_the_command():
    with pytest.raises(ConfigError) as caught:
        check_variables({"STOKER_WORKRES": "3"})
    assert str(caught.value) == "STOKER_WORKRES is no setting (did you mean STOKER_WORKERS?)"


def test_any_other_variable_is_named_in_a_line(capsys):
    check_variables({"STOKER_FLAVOUR": "3", "STOKER_ENV": "x", "STOKER_RUN": "1", "HOME": "/"})
    said = capsys.readouterr().err
    assert said == (
        "stoker: STOKER_FLAVOUR is no setting of stoker's; `stoker config` lists them\n"
    )

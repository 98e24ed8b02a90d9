"""What may travel of a folder and of the environment, and what never does."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker import travels
from stoker.travels import secrets_that_stay, shipment, stays

NEVER = (
    ".ssh/id_ed25519", ".aws/credentials", ".netrc", ".env", ".git/config", "sub/.env", "key.pem",
    "sub/id_rsa", "credentials.json", "prod.env", "netrc", "client_secret_1.json", "venv/a.py",
    "__pycache__/a.pyc",
)  # fmt: skip
TRAVEL = ("train.py", "sub/data.py", "sub/labels.txt", "credentials.py", "config.yaml")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in (*NEVER, *TRAVEL):
        file = tmp_path / "project" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return tmp_path / "project"


def test_code_travels_and_dot_entries_and_secrets_never(project: Path, tmp_path: Path) -> None:
    shipped = shipment(str(project), str(tmp_path))
    assert sorted(shipped.files) == sorted(TRAVEL)
    nbytes = sum(len(name) for name in TRAVEL)
    assert shipped.said == f"5 files, {nbytes / 1e6:.1f} MB, of {project} travel to the workers"
    shipped.copy_to(str(tmp_path / "copy"))
    copied = (tmp_path / "copy").rglob("*")
    assert sorted(str(f.relative_to(tmp_path / "copy")) for f in copied if f.is_file()) == sorted(
        TRAVEL
    )


def test_of_a_home_folder_or_what_holds_one_only_the_scripts_beside_travel(
    project: Path, tmp_path: Path
) -> None:
    for home in (project, project / "sub"):
        shipped = shipment(str(project), str(home))
        assert shipped.files == ("credentials.py", "train.py")
        assert "only .py files beside the script" in shipped.said
    assert "only .py files" not in shipment(str(project / "sub"), str(project)).said
    everybodys = shipment("/tmp", str(project))  # named, not used
    assert all(name.endswith(".py") and "/" not in name for name in everybodys.files)


def test_links_that_lead_out_or_to_a_secret_do_not_travel(project: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("secret")
    (tmp_path / "folder").mkdir()
    (project / "out.txt").symlink_to(tmp_path / "outside.txt")
    (project / "folder").symlink_to(tmp_path / "folder")
    (project / "plain.txt").symlink_to(project / ".env")
    (project / "inside.txt").symlink_to(project / "sub" / "labels.txt")
    assert set(shipment(str(project), str(tmp_path)).files) == {*TRAVEL, "inside.txt"}


def test_links_that_lead_nowhere_and_files_that_go_meanwhile_stay(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "loop.txt").symlink_to(project / "loop.txt")
    (project / "broken.txt").symlink_to(project / "nothing.txt")
    os.mkfifo(project / "fifo.txt")
    (project / "gone.txt").write_text("for a moment")
    walk = travels.os.walk

    def then_gone(top: Path) -> Iterator[tuple[str, list[str], list[str]]]:
        for found in walk(top):
            (project / "gone.txt").unlink(missing_ok=True)
            yield found

    monkeypatch.setattr(travels.os, "walk", then_gone)
    assert sorted(shipment(str(project), str(tmp_path)).files) == sorted(TRAVEL)


def test_one_file_is_told_as_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    said = shipment(str(tmp_path), "/home/me").said
    assert said == f"1 file, 0.0 MB, of {tmp_path} travels to the workers"


def test_what_is_large_stays_and_over_the_limit_nothing_travels(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "data.bin").write_bytes(bytes(travels.FILE_LIMIT_NBYTES + 1))
    assert shipment(str(project), str(tmp_path)).too_large == ("data.bin",)
    monkeypatch.setattr(travels, "MAX_FILES", 4)
    shipped = shipment(str(project), str(tmp_path))
    assert shipped.files == ()
    assert shipped.said.startswith(f"nothing of {project} travels to the workers: it holds more")


def test_variables_that_look_like_secrets_stay_unless_they_are_named() -> None:
    environ = {
        "AWS_SECRET_ACCESS_KEY": "x", "AWS_ACCESS_KEY_ID": "x", "HF_TOKEN": "x", "DB_PASSWORD": "x",
        "WANDB_API_KEY": "x", "DATABASE_URL": "postgres://me:word@host/db", "MYSQL_PWD": "x",
        "SSH_AUTH_SOCK": "x", "DATA_ROOT": "/data", "AWS_DEFAULT_REGION": "eu", "KEYBOARD": "us",
        "TOKENIZERS_PARALLELISM": "false", "HTTP_PROXY": "http://proxy:3128",
    }  # fmt: skip
    travel = [name for name, value in environ.items() if not stays(name, value)]
    assert travel == [
        "DATA_ROOT", "AWS_DEFAULT_REGION", "KEYBOARD", "TOKENIZERS_PARALLELISM", "HTTP_PROXY",
    ]  # fmt: skip
    named = {**environ, travels.SEND_ENV: "HF_TOKEN,AWS_ACCESS_KEY_ID"}
    assert secrets_that_stay(named) == [
        "AWS_SECRET_ACCESS_KEY", "DATABASE_URL", "DB_PASSWORD", "MYSQL_PWD", "WANDB_API_KEY",
    ]  # fmt: skip

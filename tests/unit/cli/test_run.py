"""`stoker run` before it becomes the command."""

import stat
import sys

import pytest

from stoker import __version__
from stoker.cli import main as cli
from stoker.cli.checks.interpreter import _interpreter_flags, interpreter_of
from stoker.cli.flags import split
from stoker.cli.run import completed, help_text, main
from stoker.config import SETTINGS
from stoker.errors import ConfigError


@pytest.mark.parametrize(
    ("words", "flags", "command"),
    [
        (["--", "python", "-c", "pass"], {}, ["python", "-c", "pass"]),
        (["python", "x.py", "--workers", "3"], {}, ["python", "x.py", "--workers", "3"]),
        (["--workers", "3", "x.py"], {"workers": "3"}, ["x.py"]),
        (["--workers=3", "--", "x.py"], {"workers": "3"}, ["x.py"]),
        (["--quiet", "x.py", "-q"], {"quiet": "1"}, ["x.py", "-q"]),
        (["-q", "x.py"], {"quiet": "1"}, ["x.py"]),
        (["-vq", "x.py"], {"quiet": "1", "verbose": "1"}, ["x.py"]),
        (["-", "x"], {}, ["-", "x"]),
        (["--quiet=0", "x.py"], {"quiet": "0"}, ["x.py"]),
        (["--report-json", "a=b.json", "x"], {"report_json": "a=b.json"}, ["x"]),
        (["--report-json=a=b.json", "x"], {"report_json": "a=b.json"}, ["x"]),
        (["--chains", "2", "--chains", "4", "x"], {"chains": "4"}, ["x"]),
        (["--", "--", "x"], {}, ["--", "x"]),
        (["--workers", "-1", "x"], {"workers": "-1"}, ["x"]),
        (["--page", "--", "x"], {"page": "0"}, ["x"]),
        (["--page", "x.py"], {"page": "0"}, ["x.py"]),
        (["--page", "8080", "x.py"], {"page": "8080"}, ["x.py"]),
        (["--page=8080", "--", "8080"], {"page": "8080"}, ["8080"]),
        (["--page", "0.0.0.0:80", "-q", "x"], {"page": "0.0.0.0:80", "quiet": "1"}, ["x"]),
    ],
)
def test_flags_end_where_the_command_begins(words, flags, command):
    assert split(words, SETTINGS, "run") == (flags, command)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no command given"),
        (["--"], "no command given"),
        (["--quiet"], "no command given"),
        (["--wokers", "3", "x"], "unknown flag '--wokers' (did you mean --workers?)"),
        (["--xyz", "3", "x"], "unknown flag '--xyz' before the command; stoker run --help"),
        (["-qx", "x"], "unknown flag '-qx'"),
        (["-w", "3", "x"], "unknown flag '-w'"),
        (["--workers"], "--workers needs a value: N"),
        (["--workers", "--", "x"], "--workers needs a value: N"),
        (["--workers=", "x"], "--workers needs a value: N|MIN:MAX; it is empty"),
        (["--workers", "", "x"], "--workers needs a value: N|MIN:MAX; it is empty"),
        (["--report-json=", "x"], "--report-json needs a value: FILE; it is empty"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(words, said):
    with pytest.raises(ConfigError) as caught:
        split(words, SETTINGS, "run")
    assert said in str(caught.value)


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_needs_no_command(word, capsys):
    assert split(["--quiet", word], SETTINGS, "run") == ({}, None)
    assert main([word]) == 0
    assert capsys.readouterr().out == help_text()


def test_help_lists_every_setting_with_its_variable():
    text = help_text()
    for setting in SETTINGS:
        assert f"  {setting.spelled}\n" in text
        assert f"{setting.meaning} [env: {setting.variable}]" in text


def test_wrong_flags_are_exit_code_2_and_one_line(capsys):
    assert main(["--workers", "0", "python", "-c", "pass"]) == 2
    said = capsys.readouterr().err
    assert said == "stoker: --workers: workers: got '0'; give a number >= 1\n"


def test_a_script_that_is_not_there_is_exit_code_2(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train.py"]) == 2
    assert capsys.readouterr().err == f"stoker: no such script: 'train.py' in {tmp_path}\n"


def test_a_script_runs_with_this_python(tmp_path):
    script = tmp_path / "train.py"
    script.touch()
    assert completed([str(script), "--lr", "1"]) == [sys.executable, str(script), "--lr", "1"]
    assert completed(["python", str(script)]) == ["python", str(script)]


def program(folder, name, first_line):
    file = folder / name
    file.write_bytes(first_line + b"\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


@pytest.mark.parametrize(
    ("first_line", "python"),
    [
        (b"#!/somewhere/bin/python3.12", "/somewhere/bin/python3.12"),
        (b"#! /somewhere/bin/python -I", "/somewhere/bin/python"),
        (b"#!/usr/bin/env no-such-python", None),
        (b"#!/bin/sh", None),
        (b"#!", None),
        (b"\x7fELF\x02\x01", None),
        (b"", None),
    ],
)
def test_the_interpreter_of_a_program_stands_in_its_first_line(tmp_path, first_line, python):
    assert interpreter_of([program(tmp_path, "torchrun", first_line)]) == python


def test_env_finds_the_python_on_the_path(tmp_path, monkeypatch):
    python = program(tmp_path, "python3", b"")
    torchrun = program(tmp_path, "torchrun", b"#!/usr/bin/env python3")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert interpreter_of([torchrun]) == python
    assert interpreter_of(["python3"]) == python
    assert interpreter_of(["torchrun"]) == python


def test_a_program_that_is_nowhere_has_no_interpreter(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert interpreter_of(["python3"]) is None


@pytest.mark.parametrize(
    ("command", "letters"),
    [
        (["python", "x.py", "-S"], ""),
        (["python", "-S", "x.py"], "S"),
        (["python3.12", "-IS", "x.py"], "IS"),
        (["python", "-uc", "pass", "-S"], "u"),
        (["python", "-m", "S"], ""),
        (["python", "-W", "-S", "x.py"], ""),
        (["python", "-WS", "x.py"], ""),
        (["python", "-X", "dev", "-S", "x.py"], "S"),
        (["python", "-Bu", "-OO", "x.py"], "BuOO"),
        (["python", "--version", "-S"], ""),
        (["python", "-", "-S"], ""),
        (["bash", "-S"], ""),
    ],
)
def test_only_what_python_itself_gets_counts_as_its_option(command, letters):
    assert _interpreter_flags(command) == letters


HINT = "; stoker --help lists the commands\n"


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        (["--version"], 0, f"stoker {__version__}\n", ""),
        (["--help"], 0, cli.USAGE, ""),
        ([], 2, "", f"stoker: a command is missing{HINT}"),
        (["rnu"], 2, "", f"stoker: unknown command 'rnu' (did you mean run?){HINT}"),
        (["--versio"], 2, "", f"stoker: unknown flag '--versio' (did you mean --version?){HINT}"),
        (["x"], 2, "", f"stoker: unknown command 'x'{HINT}"),
        (
            ["train.py", "--lr"],
            2,
            "",
            f"stoker: unknown command 'train.py'; write: stoker run -- train.py --lr{HINT}",
        ),
    ],
)
def test_the_command_itself(words, code, out, err, capsys):
    assert cli.main(words) == code
    assert tuple(capsys.readouterr()) == (out, err)


@pytest.mark.parametrize("name", [*cli.STARTS, *cli.TELLS])
def test_every_subcommand_has_a_help(name, capsys):
    assert cli.main([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: stoker {name}")
    assert cli.main(["help", name]) == 0
    assert capsys.readouterr().out == said

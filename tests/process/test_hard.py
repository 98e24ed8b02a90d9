"""Scripts that are hard to take over, plain and under stoker: same output, same end, same files.

Each file below scripts/hard is one idea, and its first line says what is hard about it. Lines of
the form `# ends: SIGKILL` or `# ends: 3` say how it ends where that is not exit code 0,
`# flags: --off` what stoker is given, `# stays with torch` that no loader is taken over, and
`# stderr by chance` that plain torch's own differs from run to run and is not compared.
"""

import json
import re
import shutil
import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stoker import config
from stoker.cli.flags import split
from tests.process.harness import ENVIRON, MARK, SCRIPTS, left_in_shm
from tests.process.warm import Ran, Server

HARD = SCRIPTS / "hard"
# In the default tier is every fifth of these folders: a script costs two seconds, and what the others
# do has tests of its own there.
DEFAULT = {"batches", "descriptors", "exits", "memory", "processes", "signals"}
EVERY = 5
_OURS = re.compile(r"^stoker: .*\n", re.MULTILINE)
# A frame of torch's loader or ours; Python underlines parts of its line where that helps.
_FRAME = re.compile(r'^ *File "[^"]*/(torch/utils/data|stoker)/[^\n]*\n(?: {4,}[^\n]*\n)*', re.M)

# torch's iterators that an exception keeps alive say so in the workers of the next one.
_FORGOTTEN = re.compile(
    r"^Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__[^\n]*\n"
    r"Traceback[^\n]*\n(?: [^\n]*\n)*\w+Error: [^\n]*\n", re.M,
)  # fmt: skip


def _scripts() -> list[object]:
    found = sorted(p for p in HARD.rglob("*.py") if p.parent != HARD and p.name[0] != "_")
    return [
        pytest.param(path, id=_name(path), marks=_marks(path, k)) for k, path in enumerate(found)
    ]


def _name(path: Path) -> str:
    return str(path.relative_to(HARD).with_suffix(""))


def _marks(path: Path, k: int) -> list[pytest.MarkDecorator]:
    """Two servers at most: a group each."""
    is_default = path.parent.name in DEFAULT and k % EVERY == 0
    full = [] if is_default else [pytest.mark.full]
    return [pytest.mark.xdist_group(f"hard {k // EVERY % 2}"), *full]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    environ = {name: value for name, value in ENVIRON.items() if name != "PYTHONUNBUFFERED"}
    server = Server(environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONFAULTHANDLER": "1"})
    yield server
    server.close()


@dataclass(frozen=True)
class Side:
    ran: Ran
    files: dict[str, bytes]  # in its working folder
    left: list[str]  # in its home, its temporary folder and /dev/shm


@pytest.mark.parametrize("script", _scripts())
def test_a_hard_script_cannot_tell(script, server, tmp_path):
    plain = _side(server, script, tmp_path, {})
    flags, ends = _said(script, "flags").split(), _said(script, "ends") or "0"
    assert _end(plain.ran) == ends, plain.ran.stderr
    assert plain.ran.stdout
    assert plain.ran.leftovers == []

    report = tmp_path / "report.json"
    settings, _ = split([*flags, f"--report-json={report}", "--", "python"], config.SETTINGS, "run")
    ours = _side(
        server, script, tmp_path,
        {config.ARMED: "1", **config.resolve(settings, {}, {}).settings.to_env()},
    )  # fmt: skip
    text = script.read_text()
    if "# stderr by chance" not in text:
        assert _told(ours.ran) == _told(plain.ran)
    assert ours.ran.stdout == plain.ran.stdout
    assert _end(ours.ran) == ends
    assert ours.files == plain.files
    assert (ours.ran.leftovers, ours.left) == ([], [])
    reports = [json.loads(p.read_text()) for p in tmp_path.glob("report*")]
    taken = [loader["offloaded"] for report in reports for loader in report["loaders"]]
    if "# stays with torch" in text:
        assert not any(taken)
    else:
        assert any(taken), "stoker has taken nothing over: this shows nothing"


def test_the_runner_finds_what_a_script_leaves(server, tmp_path):
    side = _side(server, HARD / "_leaves.py", tmp_path, {}, gone_within_s=0.0)
    assert [name.split() for name in side.ran.leftovers] == [["sleep", "600"]]
    assert side.left == ["tmp/left"]
    assert side.files == {"made": b"here"}
    assert (side.ran.ends, side.ran.stdout, side.ran.stderr) == (-15, "out\n", "err\n")


def _side(
    server: Server, script: Path, folder: Path, environ: dict[str, str], **kwargs: float
) -> Side:
    """Both run in folders of the same name, for scripts tell paths."""
    work = folder / "work"
    for name in ("cwd", "tmp", "home", "out"):
        (work / name).mkdir(parents=True)
    own = {"TMPDIR": str(work / "tmp"), "HOME": str(work / "home"), MARK: uuid.uuid4().hex}
    shm = left_in_shm()
    own |= {"PYTHONDONTWRITEBYTECODE": "1"}
    ran = server.run(script, work / "cwd", ENVIRON | own | environ, work / "out", **kwargs)
    files = {str(f.relative_to(work / "cwd")): f.read_bytes() for f in _files(work / "cwd")}
    left = [str(f.relative_to(work)) for n in ("tmp", "home") for f in _files(work / n)]
    left += sorted(left_in_shm() - shm)
    shutil.rmtree(work)
    return Side(ran, files, left)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _said(script: Path, what: str) -> str:
    found = re.search(rf"^# {what}: (.*)$", script.read_text(), re.MULTILINE)
    return found[1] if found else ""


def _end(ran: Ran) -> str:
    if ran.ends is None:
        return f"hangs: {ran.stderr}"
    return str(ran.ends) if ran.ends >= 0 else signal.Signals(-ran.ends).name


def _told(ran: Ran) -> str:
    """stderr without our lines, and without what tracebacks must differ in: a loader's frames."""
    told = _FORGOTTEN.sub("", ran.stderr)
    told = _FRAME.sub("", _OURS.sub("", told))
    return re.sub("0x[0-9a-f]+", "0x", told)

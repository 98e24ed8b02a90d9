"""Every stoker command that a page shows is one that stoker takes.

Every block of commands is run as it stands, and what the page shows below must be what comes; but for
those commands that need what is not here: of each the reason.
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker import config
from stoker.cli import main as cli
from stoker.cli.flags import parse
from stoker.cli.tell.completions import SHELLS, commands
from tests.conftest import wait_until_gone
from tests.needs import NEEDS_RAY
from tests.process import pages
from tests.process.harness import PATIENCE_S, finished
from tests.process.nodes import Nodes, ray_of
from tests.process.pages import FENCED, PAGES, ROOT

COMMAND = re.compile(rf"(?<![\w/.-])stoker ({'|'.join([*cli.STARTS, *cli.TELLS])})\b(.*)")
# What a reader puts something of their own for.
PLACEHOLDERS = {
    "X": "1",
    "Y": "1",
    "HOST:PORT": "h:1",
    "ADDRESS": "auto",
    "N": "1",
    "PATTERN=CODE": "a=8bit",
}
TRAIN = """\
import os
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(64, 64)
if "RANK" in os.environ:
    torch.distributed.init_process_group("gloo")
    model = DistributedDataParallel(model)
data = TensorDataset(torch.rand(256, 64), torch.arange(256))
for epoch in range(2):
    for x, y in DataLoader(data, 4, num_workers=2):
        model(x).sum().backward()
if "RANK" in os.environ:
    torch.distributed.destroy_process_group()
"""
SPAWNED = """\
import runpy
import torch

def rank(number):
    runpy.run_path("train.py")

if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, nprocs=2)
"""


def shown() -> dict[str, tuple[str, str]]:
    """Every command of a fenced block, as `page: command` -> subcommand, and what follows it."""
    found = {}
    for page in PAGES:
        for block in FENCED.findall(page.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                is_typed = line.lstrip().startswith(("$", "%")) or re.match(r" *\w+\$ ", line)
                for match in COMMAND.finditer(line) if is_typed else ():
                    found[f"{page.relative_to(ROOT)}: {match[0].strip()}"] = (match[1], match[2])
    return found


SHOWN = shown()


def words_of(rest: str) -> list[str]:
    rest = rest.replace("\\|", "|").partition("|")[0].partition(" > ")[0].rstrip("'& ")
    return [PLACEHOLDERS.get(word, word) for word in shlex.split(rest, comments=True)]


def test_there_are_commands_to_check():
    assert len(SHOWN) > 20


@pytest.mark.parametrize("name", SHOWN)
def test_a_command_in_the_docs_is_one_that_stoker_takes(name):
    subcommand, rest = SHOWN[name]
    words = words_of(rest)
    known = commands()[subcommand]
    if subcommand == "completions":
        assert words[0].partition("|")[0] in (*SHELLS, "--help")
        return
    flags, left = parse(words, known.flags, subcommand)
    if flags is None:  # --help
        return
    assert bool([word for word in left if word != "--"]) == known.starts
    own = {setting.name for setting in config.SETTINGS}
    config.resolve({k: v for k, v in flags.items() if k in own}, {}, {})


# Why a command is not run here, by what it contains.
NOT_HERE = {
    "pip install": "tests/bare installs",
    "pip uninstall": "tests/bare uninstalls",
    "rm -rf ~/.cache/stoker": "tests/bare uninstalls",
    'python -c "import stoker"': "tests/bare looks for what is left",
    "purelib": "tests/bare looks for what is left",
    "ls -d ~/.cache": "tests/bare looks for what is left",
    "env | grep": "tests/bare looks for what is left",
    "pgrep": "needs a machine that runs nothing else",
    "pt_data_worker": "test_docs.py kills a worker of its own",
    "killed.json": "test_docs.py kills a worker of its own",
    "git clone": "needs the address",
    "scripts/demo": "tests/bare runs it",
    "scripts/bench": "a matter of minutes, and of a machine that is still; CI looks at the rows",
    "stoker-workers": "tests/unit/deploy packs and installs",
    "deploy/pack.py": "tests/unit/deploy packs and installs",
    "deploy/bare-hosts.sh": "test_deploy.py calls it",
    "sbatch": "test_deploy.py calls it",
    "srun": "needs Slurm",
    "mpirun": "needs MPI",
    "source ~/venv": "the environment is active",
    "source .venv": "the environment is active",
    "--nnodes": "needs two hosts",
    "ssh": "needs other hosts",
    "s3://bucket": "needs a bucket; test_storage.py has one",
    "docker": "needs Docker",
    "kubectl": "needs Kubernetes",
    "ray start": "the cluster is there",
    "ray get-auth-token": "the cluster is there",
    "RAY_AUTH_MODE": "the cluster is there",
    "ray up": "needs a cloud",
    "ray rsync-up": "needs a cloud",
    "ray exec": "needs a cloud",
    "aws ": "needs a cloud",
    "az ": "needs a cloud",
    "gcloud": "needs a cloud",
}
OTHERS_GONE_WITHIN_S = 10.0  # with --cluster; docs/guarantees.md, G5
IN_PLACE = {"X": "0.05", "Y": "1.00"}
SLOW = ("examples/", "torchrun", "accelerate", "verify")


def runnable() -> dict[tuple[str, ...], tuple[str, ...]]:
    """The commands of each block that can run here -> all lines that pages show of them."""
    found: dict[tuple[str, ...], tuple[str, ...]] = {}
    for block in pages.blocks():
        here = tuple(c for c in block.commands if not any(word in c for word in NOT_HERE))
        shown = () if block.page == "docs/cluster.md" else block.shown  # test_ray.py has two runs
        if any(not command.startswith("#") for command in here):
            found[here] = found.get(here, ()) + shown
    return found


RUNNABLE = {" ; ".join(here)[:160]: (here, shown) for here, shown in runnable().items()}
assert len(RUNNABLE) == len(runnable())  # no name is another's
ON_RAY = [name for name in RUNNABLE if "--cluster auto" in name]
HERE = [
    pytest.param(name, marks=[pytest.mark.full] if any(word in name for word in SLOW) else [])
    for name in RUNNABLE
    if name not in ON_RAY
]


def test_no_reason_outlives_its_command():
    commands_shown = [command for block in pages.blocks() for command in block.commands]
    assert [word for word in NOT_HERE if not any(word in c for c in commands_shown)] == []


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """A third of those that the tutorial has."""
    folder = tmp_path_factory.mktemp("photographs") / "photos"
    words = [ROOT / "examples/images/photos.py", folder, "--count", "700"]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    return folder


@pytest.fixture
def place(tmp_path) -> Path:
    """A folder as a reader has it: scripts of their own, and our examples."""
    folder = tmp_path / "reader"
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / "train.py").write_text(TRAIN)
    (folder / "train_with_mp_spawn.py").write_text(SPAWNED)
    return folder


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with ray_of(1) as made:
        yield made


def run_block(name: str, place: Path, **environ: str) -> None:
    here, shown = RUNNABLE[name]
    script = "\n".join(here)
    for placeholder, value in IN_PLACE.items():
        script = re.sub(rf"(?<= ){placeholder}(?= )", value, script)
    path = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    own = {"PATH": path, "OMP_NUM_THREADS": "1", "SLURM_JOB_ID": "1"}
    kwargs = {"environ": own | environ, "cwd": place, "patience_s": len(here) * PATIENCE_S}
    ran = finished(["bash", "-e", "-c", script], place / "..", **kwargs)
    assert ran.returncode == 0, ran.stderr
    wait_until_gone(frozenset(ran.leftovers), OTHERS_GONE_WITHIN_S)
    assert [what for pid, what in ran.leftovers.items() if Path(f"/proc/{pid}").exists()] == []
    assert pages.unsaid(list(shown), ran.stdout + ran.stderr) == []


@pytest.mark.few(4)
@pytest.mark.parametrize("name", HERE)
def test_a_block_of_commands_runs_as_it_stands_and_shows_what_the_page_shows(name, place, request):
    if "--data .data/photos" in name:
        (place / ".data").mkdir()
        (place / ".data/photos").symlink_to(request.getfixturevalue("photos"))
    run_block(name, place)


@pytest.mark.full
@pytest.mark.xdist_group("cluster")
@NEEDS_RAY
@pytest.mark.parametrize("name", ON_RAY)
def test_a_block_for_a_cluster_runs_on_one(name, place, nodes):
    run_block(name, place, RAY_ADDRESS=nodes.address, **nodes.token)

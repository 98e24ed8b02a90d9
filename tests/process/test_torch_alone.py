"""Where nothing is installed but torch, stoker works all the same: G4's first half is that it does.

The packages are refused, not missing: installations into bare environments are tried elsewhere.
"""

import sys
from pathlib import Path

from tests.process.harness import SCRIPTS, Finished, finished, under_stoker

REFUSE = '''
"""Refuses every package that stoker may use and torch does not need."""
import sys


class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {
            "PIL", "cloudpickle", "cryptography", "llvmlite", "numba", "numpy", "psutil", "ray",
            "torchdata", "torchvision", "triton", "xxhash", "zstandard",
        }:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Refuse())
'''


def test_beside_torch_nothing_needs_to_be_installed(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(REFUSE)
    environ = {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    script = [sys.executable, str(SCRIPTS / "torch_alone.py")]
    plain = finished(script, tmp_path / "plain", environ=environ)
    flags = ["--workers", "2", "--report-json", str(tmp_path / "ours" / "report.json")]
    ours = finished([*under_stoker(*flags), *script], tmp_path / "ours", environ=environ)
    assert ours.returncode == plain.returncode == 0, plain.stderr + ours.stderr
    assert ours.stdout.splitlines()[:-1] == plain.stdout.splitlines()[:-1]
    assert ours.report is not None
    assert [loader["reasons"] for loader in ours.report["loaders"]] == [[]] * 5
    brought = {name for name in _packages(ours) - _packages(plain) if not _is_pythons(name)}
    assert brought == {"stoker"}


def _is_pythons(name: str) -> bool:
    """sysconfig's table of the build is a module with the platform in its name."""
    return name in sys.stdlib_module_names or name.startswith("_sysconfigdata_")


def _packages(run: Finished) -> set[str]:
    return set(run.stdout.splitlines()[-1].split()[1:])

"""The default tier: the cover of a product, every guarantee at least once; and no test is imported."""

import ast
import importlib.util
import itertools
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.tiers import cover, few

ROOT = Path(__file__).resolve().parents[2]
GUARANTEES = ROOT / "docs" / "guarantees.md"
MAX_FULL = 4  # rows that need a network service, a framework or network namespaces


def test_every_two_values_meet_in_a_cover_and_it_is_much_smaller_than_the_product():
    axes = {"a": range(5), "b": range(4), "c": range(3), "d": range(2)}
    product = [
        frozenset(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
    ]
    kept = [product[k] for k in cover(product, 2)]

    def pairs(cases):
        return {pair for case in cases for pair in itertools.combinations(sorted(case), 2)}

    assert pairs(kept) == pairs(product)
    assert len(kept) <= 30 < len(product)
    assert len(cover(product, 1)) == 5


def test_a_few_are_spread_over_all():
    assert few(20, 4) == {0, 5, 10, 15}
    assert few(2, 5) == {0, 1}


CASES = """
import pytest

@pytest.mark.cover(1)
@pytest.mark.parametrize("a", "xyz")
@pytest.mark.parametrize("b", [None, 1])
def test_product(a, b): ...

@pytest.mark.few(2)
@pytest.mark.parametrize("a", range(6))
def test_many(a): ...

@pytest.mark.full
def test_dear(): ...
"""


def test_the_marks_choose_among_collected_tests(tmp_path):
    """In a run of its own, so that the cases are those that pytest makes."""
    (tmp_path / "conftest.py").write_text("from tests.conftest import *  # noqa: F403\n")
    (tmp_path / "test_cases.py").write_text(CASES)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", f"--rootdir={tmp_path}"]
    command += ["-o", "markers=cover\nfew\nfull", "-p", "no:cacheprovider", str(tmp_path)]
    counts = []
    for more in ([], ["--full"]):
        ran = subprocess.run(
            [*command, *more], cwd=ROOT, capture_output=True, text=True, check=True
        )
        counts.append([ran.stdout.count(f"::test_{name}") for name in ("product", "many", "dear")])
    assert counts == [[3, 2, 0], [6, 6, 1]]


GROUP = """
import os, pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("k", range(8))
def test_of_the_group(k, testrun_uid):
    with open(__file__ + ".workers", "a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], file=file)
"""


def test_a_group_of_tests_runs_in_one_process(tmp_path):
    """pytest-xdist 3.8 under pytest 9.2 deals them out one by one (pytest-xdist#1386): what their
    fixtures start, a Ray or a cluster, is started twice then, and timed tests run two at a time."""
    file = tmp_path / "test_group.py"
    file.write_text(GROUP)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup"]
    subprocess.run([*command, f"--rootdir={tmp_path}", str(tmp_path)], check=True)
    assert len(set(Path(f"{file}.workers").read_text().split())) == 1


# -- guarantees ------------------------------------------------------------------------------------


def is_full(marks: list[ast.expr]) -> bool:
    return any("mark.full" in ast.unparse(mark) for mark in marks)


@cache
def defined_in(file: Path) -> dict[str, bool]:
    """Its tests, and whether the default tier has a case of each."""
    tree = ast.parse(file.read_text())
    all_full = any(
        isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "pytestmark"
        and is_full([node.value])
        for node in tree.body
    )
    return {
        node.name: not (all_full or is_full([d for d in node.decorator_list if is_bare(d)]))
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def is_bare(mark: ast.expr) -> bool:
    """Of the whole test, not of one of its cases."""
    return not ast.unparse(mark).startswith("pytest.mark.parametrize")


def all_tests() -> dict[str, bool]:
    found: dict[str, bool] = {}
    for file in (ROOT / "tests").rglob("test_*.py"):
        for name, is_default in defined_in(file).items():
            found[name] = found.get(name, False) or is_default
    return found


def rows() -> list[str]:
    """Of the tables, those that name a test."""
    lines = GUARANTEES.read_text().splitlines()
    return [line for line in lines if line.startswith("| ") and "test_" in line]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.split("|")[1].strip()[:60])
def test_every_guarantee_is_shown_in_the_default_tier(row):
    """By a test that it names, or by the files that it names alone; else the row says (full)."""
    files = [
        (GUARANTEES.parent / link).resolve()
        for link in re.findall(r"\]\((\.\./tests/[\w/]+\.py)\)", row)
    ]
    missing = [file for file in files if not file.exists()]
    assert missing == []
    names = re.findall(r"`(test_\w+)`", row)
    everything = all_tests()
    assert [name for name in names if name not in everything] == []
    here = {name: found for file in files for name, found in defined_in(file).items()}
    shown = [(everything | here)[name] for name in names]
    shown += [any(defined_in(file).values()) for file in files if file.stem.startswith("test_")]
    assert any(shown) or "(full)" in row, "no test of the default tier shows it"


def test_few_guarantees_are_left_to_the_full_tier():
    assert sum("(full)" in row for row in rows()) <= MAX_FULL


# -- what CI runs of the full tier -----------------------------------------------------------------


@pytest.fixture
def touched():
    spec = importlib.util.spec_from_file_location("touched", ROOT / ".ci" / "touched.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_room_has_tests_of_the_full_tier(touched):
    rooms = {folder.parent.name for folder in (ROOT / "src" / "stoker").glob("*/__init__.py")}
    assert rooms == set(touched.ROOMS)
    assert {f"tests/{test}.py" for tests in touched.ROOMS.values() for test in tests} < set(
        touched.MINUTES
    )
    assert [path for path in touched.MINUTES if not (ROOT / path).exists()] == []


def test_ci_runs_what_a_change_touched_as_long_as_its_budget_lasts(touched):
    assert touched.chosen(["README.md", "tests/unit/scheduler/test_plan.py"]) == []
    found = touched.chosen(["src/stoker/verify/table.py", "tests/equality/test_kept.py"])
    bare, verify = "tests/bare/test_bare.py", "tests/process/test_verify.py"
    assert found == [bare, verify, "tests/equality/test_kept.py"]
    assert touched.chosen(["src/stoker/remote/x.py"])[1] == "tests/unit/remote"
    found = touched.chosen([f"src/stoker/{room}/x.py" for room in touched.ROOMS])
    assert 0 < sum(touched.MINUTES[path] for path in found) <= touched.BUDGET_MIN


# -- imports ---------------------------------------------------------------------------------------


def imported(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


def test_no_test_is_imported():
    """What tests share, or benchmarks use, is a file without `test_`."""
    files = [file for folder in ("tests", "benchmarks") for file in (ROOT / folder).rglob("*.py")]
    assert len(files) > 200
    wrong = {
        f"{file.relative_to(ROOT)} -> {name}"
        for file in files
        for name in imported(file)
        if any(part.startswith("test_") for part in name.split(".")[:-1])
    }
    assert wrong == set()

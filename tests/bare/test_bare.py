"""Installed as the README says where nothing else is: it works, and tells what it lacks."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.bare import places
from tests.bare.places import DOZEN, ROOT, Bare
from tests.process import pages

pytestmark = pytest.mark.xdist_group("bare")  # its environments are made once
pytest.importorskip("hatchling", reason="hatchling, which builds the wheel, is not installed")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return places.wheel_of(places.unpacked_source(folder), folder)


@pytest.fixture(scope="module")
def torch_only(tmp_path_factory, wheel) -> Bare:
    bare = places.with_linked_torch(tmp_path_factory.mktemp("torch") / "env")
    bare.install("--no-index", "--no-deps", wheel)
    return bare


def the_same_under_stoker(bare: Bare, folder: Path, *words: str, flags: tuple[str, ...] = ()):
    """The report of a run of dozen.py, which must print what it prints plain."""
    plain = bare.run(folder / "plain", DOZEN, *words)
    ours = bare.under_stoker(folder / "ours", DOZEN, *words, flags=flags)
    assert ours.stdout == plain.stdout and plain.stdout.count("\n") >= 13, ours.stderr
    assert ours.code == plain.code == 0, ours.stderr
    left = [loader for loader in ours.report["loaders"] if not loader["offloaded"]]
    assert all("num_workers=0" in loader["reasons"][0] for loader in left), left
    return ours.report


def test_the_wheel_holds_the_line_that_arms_and_the_compiled_file_and_no_tests(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "stoker.pth" in names
    assert not [name for name in names if re.search(r"\.c\.new|test|__pycache__", name)]
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"stoker", "stoker.pth", "stoker-0.1.0.dist-info"}
    static = {
        "page.html",
        "page.js",
        "page.css",
        "uPlot.iife.min.js",
        "uPlot.min.css",
        "uPlot.LICENSE",
    }
    assert {f"stoker/live/static/{name}" for name in static} <= set(names)
    if "none-any" not in wheel.name:
        libraries = {
            "libunchanged.so", "wire/libstream_copy.so", "wire/libpalette.so", "images/libimages.so"
        }  # fmt: skip
        assert {f"stoker/{name}" for name in libraries} <= set(names)
        assert wheel.name.endswith("-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl")


RELATIVE = re.compile(r"\]\((?!\w+:|#)")


def shown_by_an_index(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith("dist-info/METADATA"))
        return opened.read(name).decode()


def test_what_an_index_shows_has_no_dead_link(wheel):
    shown = shown_by_an_index(wheel)
    assert "Makes an unmodified PyTorch training script" in shown
    assert RELATIVE.search((ROOT / "README.md").read_text())  # it would be found
    assert not RELATIVE.search(shown) and "\nProject-URL:" not in shown


def test_with_a_public_address_its_links_lead_there(tmp_path):
    source = places.unpacked_source(tmp_path)
    settings = (source / "pyproject.toml").read_text()
    assert settings.count('repository = ""') == 1
    address = "https://example.org/team/stoker"
    (source / "pyproject.toml").write_text(
        settings.replace('repository = ""', f'repository = "{address}"')
    )
    shown = shown_by_an_index(places.wheel_of(source, tmp_path))
    assert not RELATIVE.search(shown)
    assert f"]({address}/raw/main/docs/speed.svg)" in shown
    assert f"]({address}/tree/main/docs/decisions/)" in shown
    assert f"Project-URL: Issues, {address}/issues" in shown
    led = re.findall(rf"{address}/(?:blob|tree|raw)/main/([^)#\s]+)", shown)
    assert len(led) > 20 and all((ROOT / path).exists() for path in led)


def test_with_torch_only_a_dozen_loaders_give_the_same(torch_only, tmp_path):
    missing = "import importlib.util as u; assert not any(map(u.find_spec, ('numpy', 'xxhash')))"
    assert torch_only.run(tmp_path, "-c", missing).code == 0
    the_same_under_stoker(torch_only, tmp_path)


def test_the_page_needs_no_package(torch_only, tmp_path):
    report = the_same_under_stoker(torch_only, tmp_path, flags=("--page",))
    assert report["ended"] == "exit"


@pytest.mark.parametrize(
    ("flags", "lacks", "extra"),
    [
        (("--cluster", "processes:1"), "--cluster needs cloudpickle", "cluster"),
        (("--gradients", "4bit"), "--gradients needs numba", "gradients"),
        (("--tensorboard", "runs"), "--tensorboard needs tensorboard", "metrics"),
    ],
)
def test_what_an_extra_brings_is_told_with_where_this_stoker_lies(
    torch_only, wheel, tmp_path, flags, lacks, extra
):
    run = torch_only.under_stoker(tmp_path, "-c", "print('never')", flags=flags)
    assert run.code == 2 and run.stdout == ""
    assert run.stderr.startswith(f"stoker: {lacks}") and run.stderr.count("\n") == 1
    assert run.stderr.endswith(f"-m pip install '{wheel}[{extra}]'\n")


def test_what_the_page_says_of_uninstalling_leaves_nothing(wheel, tmp_path):
    bare = places.with_linked_torch(tmp_path / "env")
    bare.install("--no-index", "--no-deps", wheel)
    before = {file.name for file in bare.site.iterdir() if "stoker" not in file.name}
    home, tools = tmp_path / "home", tmp_path / "tools"
    state = home / ".local/state/stoker/runs"
    for folder in (home / ".cache/stoker/kernels", home / ".config/stoker", state, tools):
        folder.mkdir(parents=True)
    (state / "20270115-080000-7.jsonl").touch()
    (home / ".config/stoker/config.toml").write_text("quiet = true\n")
    ran = bare.run(tmp_path, "-m", "stoker", "run", "--", bare.python, DOZEN, HOME=str(home))
    assert ran.code == 0 and "stoker" not in ran.stderr, ran.stderr  # the settings file was read
    (tools / "python").symlink_to(bare.python)
    pip = f'#!/bin/sh\nexec {sys.executable} -m pip --python {bare.python} "$@" -y\n'
    (tools / "pip").write_text(pip)
    (tools / "pip").chmod(0o755)
    environ = {"HOME": str(home), "PATH": f"{bare.folder}/bin:{tools}:/usr/bin:/bin"}

    remove, look = (block.commands for block in pages.blocks() if block.page == "docs/uninstall.md")
    assert len(remove) == 2 and len(look) == 5
    for command in remove:
        places.output("bash", "-c", command, **environ)
    import_it, site, folders, variables, _ = (
        subprocess.run(
            ["bash", "-c", command],
            env=places.surroundings(environ),
            capture_output=True,
            text=True,
        )
        for command in look
    )
    assert "ModuleNotFoundError: No module named 'stoker'" in import_it.stderr
    assert site.stdout == variables.stdout == ""
    assert str(home) not in folders.stdout  # /tmp may have another test's
    left = {file.name for file in bare.site.iterdir()} - before
    assert left <= {"__pycache__"}  # of typing_extensions


@pytest.mark.full
def test_stoker_verify_finds_a_bare_environment_equal(torch_only, tmp_path):
    run = torch_only.run(tmp_path, "-m", "stoker", "verify", "--", torch_only.python, DOZEN)
    assert run.code == 0 and "equal" in run.stderr + run.stdout, run.stderr + run.stdout


@pytest.mark.full
def test_a_wheel_says_what_it_runs_on_and_is_the_same_when_built_again(wheel, tmp_path):
    pytest.importorskip("auditwheel")
    if "none-any" in wheel.name:
        pytest.skip("no C compiler here")
    shown = places.output(sys.executable, "-m", "auditwheel", "show", wheel)
    oldest = re.search(r'platform tag:\s+"manylinux_2_(\d+)_x86_64"', shown)
    assert oldest and int(oldest[1]) <= 17, shown
    again = places.wheel_of(places.unpacked_source(tmp_path), tmp_path)
    assert again.read_bytes() == wheel.read_bytes()


@pytest.mark.full
def test_a_tarball_without_git_builds_the_same_wheel(wheel, tmp_path):
    pytest.importorskip("build")
    source = places.unpacked_source(tmp_path)
    places.output(sys.executable, "-m", "build", "--sdist", "-o", tmp_path / "out", source)
    (tarball,) = (tmp_path / "out").glob("*.tar.gz")
    again = places.wheel_of(tarball, tmp_path)
    assert zipfile.ZipFile(again).namelist() == zipfile.ZipFile(wheel).namelist()
    assert again.name == wheel.name


@pytest.mark.full
def test_without_a_compiler_it_installs_works_and_tells_once_where_it_matters(tmp_path):
    nothing = places.without_compiler(tmp_path)
    wheel = places.wheel_of(places.unpacked_source(tmp_path), tmp_path, **nothing)
    assert wheel.name == "stoker-0.1.0-py3-none-any.whl"
    bare = places.with_linked_torch(tmp_path / "env")
    bare.install("--no-index", "--no-deps", wheel)
    report = the_same_under_stoker(bare, tmp_path, "--large")
    told = [note for loader in report["loaders"] for note in loader["notes"] if "compiler" in note]
    assert told == [
        "large batches are copied more slowly: stoker was installed without a C compiler"
    ]


# With the real thing: torch fetched by pip, once for all of these.


@pytest.fixture(scope="module")
def pips_torch(tmp_path_factory) -> Bare:
    bare = places.made(tmp_path_factory.mktemp("pip") / "env")
    bare.install("torch")
    return bare


@pytest.mark.full
def test_pip_install_of_the_folder_as_the_readme_says(pips_torch, tmp_path):
    bare = places.made(tmp_path / "env", beneath=pips_torch.site)
    bare.install(places.unpacked_source(tmp_path))
    the_same_under_stoker(bare, tmp_path, "--spawn")


@pytest.mark.full
@pytest.mark.parametrize(
    ("beside", "extra", "flags"),
    [
        (("numpy",), "", ()),
        ((), "[torch]", ()),
        ((), "[gradients]", ("--gradients", "4bit")),
        ((), "[cluster]", ("--cluster", "processes:1")),
    ],
)
def test_each_extra_alone(pips_torch, wheel, tmp_path, beside, extra, flags):
    bare = places.made(tmp_path / "env", beneath=pips_torch.site)
    bare.install(f"{wheel}{extra}", *beside)
    the_same_under_stoker(bare, tmp_path, flags=flags)


@pytest.mark.full
def test_the_demo_runs_in_a_fresh_clone_with_an_empty_home_and_without_a_compiler(tmp_path):
    clone, home = tmp_path / "clone", tmp_path / "home"
    home.mkdir()
    places.output("git", "clone", "-q", ROOT, clone)
    nothing = places.without_compiler(tmp_path) | {"HOME": str(home), "PYTHON": sys.executable}
    words = ("--limit", "128", "--epochs", "2")
    done = subprocess.run(
        [str(clone / "scripts" / "demo"), *words], env=places.surroundings(nothing),
        capture_output=True, text=True, timeout=places.PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (
        "10 batches of each side: all hashes equal\nThe same 2 epochs, the same batches:"
        in done.stdout
    )
    assert re.search(r"setup: pip, after 1\d s: \S", done.stderr)
    assert done.stderr.index("setup: demo: torch") < done.stderr.index("demo: making")
    assert "apt-get" not in done.stderr
    assert places.output(clone / "scripts" / "setup", "demo", **nothing) == ""  # all is there


def test_a_tier_that_is_none_is_told_and_nothing_is_touched(tmp_path):
    scripts = tmp_path / "scripts"
    shutil.copytree(ROOT / "scripts", scripts)
    for words in ([], ["all"], ["none"], ["demo", "test"]):
        done = subprocess.run([scripts / "setup", *words], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (2, "usage: scripts/setup demo|test|full\n")
    assert [each.name for each in tmp_path.iterdir()] == ["scripts"]

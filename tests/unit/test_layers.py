"""Which room may import which: the arrows of docs/architecture.md, read from the source."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stoker

ROOT = Path(stoker.__file__).parent
MAX_FILES = 9  # of a room, beside its __init__
# A room that is larger until it is laid out anew: it may not grow further.
LARGER = {"memory": 13}
ARROWS: dict[str, set[str]] = {
    "api": {"cli", "intercept", "reports"},
    "cli": {
        "doctor",
        "intercept",
        "live",
        "local",
        "remote/engines",
        "reports",
        "reports/summary",
        "runs",
        "stalls",
        "storage/mounting",
        "verify",
    },
    "doctor": {"local", "reports", "reports/summary", "stalls", "verify", "wire"},
    "intercept": {
        "doctor",
        "fast",
        "gradients",
        "loaders",
        "loaders/in_process",
        "local",
        "memory",
        "remote/net",
        "remote/trainer",
        "reports",
        "scheduler/tasks",
        "storage/asking",
        "storage/mounting",
        "verify",
        "worker",
    },
    "verify": {"reports"},
    "loaders/in_process": {
        "fast",
        "fingerprint",
        "loaders",
        "local",
        "memory",
        "remote/trainer",
        "scheduler",
        "scheduler/tasks",
        "wire",
        "worker",
    },
    "loaders": {
        "fast",
        "local",
        "memory",
        "remote/net",
        "remote/trainer",
        "scheduler",
        "scheduler/tasks",
        "stalls",
        "storage/asking",
        "wire",
        "worker",
    },
    "remote/trainer": {
        "local",
        "remote/engines",
        "remote/net",
        "scheduler/tasks",
        "storage/asking",
        "storage/origins",
        "storage/peers",
        "wire",
    },
    "remote/host": {
        "local",
        "memory",
        "remote/engines",
        "remote/net",
        "scheduler/tasks",
        "storage/mounting",
        "wire",
        "worker",
    },
    "remote/net": {"fingerprint", "local", "remote/engines", "scheduler/tasks", "wire", "worker"},
    "remote/engines": set(),
    "local": {"scheduler/tasks"},
    "worker": {
        "stalls",
        "fast",
        "fingerprint",
        "images",
        "memory",
        "memory/decoders",
        "scheduler/tasks",
        "storage/asking",
        "wire",
    },
    "images": {"fast", "fingerprint", "memory", "memory/decoders"},
    "fast": {"fingerprint", "memory"},
    "memory": {"fingerprint", "reports", "wire"},
    "memory/decoders": {"fingerprint", "memory"},
    "fingerprint": set(),
    "reports": {"live", "runs", "stalls"},
    "live": {"runs", "stalls"},
    "runs": {"stalls"},
    "stalls": set(),
    "storage/mounting": {"storage/asking", "storage/origins", "storage/serving"},
    "storage/archives": {"storage/origins", "storage/reading"},
    "storage/serving": {
        "storage/archives",
        "storage/asking",
        "storage/origins",
        "storage/peers",
        "storage/reading",
    },
    "storage/peers": {"remote/net", "storage/origins", "storage/reading"},
    "storage/reading": {"storage/origins"},
    "storage/origins": {"remote/net"},
    "storage/asking": set(),
    "wire": set(),
    "scheduler": {"scheduler/tasks"},
    "scheduler/tasks": set(),
    "gradients": set(),
}
ALCOVES = [
    "cli/checks",
    "cli/examine",
    "cli/tell",
    "loaders/driver",
    "memory/cut",
    "memory/decoders/libraries",
    "memory/store",
    "memory/store/coding",
    "memory/store/disk",
    "memory/watch",
    "scheduler/rules",
    "wire/arena",
    "wire/lossless",
    "gradients/blocks",
    "gradients/gate",
    "reports/summary",
]  # of a room: a thing of several files, one of the room's eight
HALLS = {"remote", "storage"}  # only rooms in it, no file
EVERYBODY_MAY = {
    "errors",
    "config",
    "clock",
    "compiled",
    "blame",
    "descriptors",
    "kept_files",
    "orphans",
    "poll_loop",
    "redirect",
    "shared_tensors",
    "at_fork",
    "bars",
    "speak",
    "stack",
    "tables",
    "travels",
    "trusted",
    "unchanged",
    "uncollected",
    "reports.metrics",
}
CLI_MAY = {"errors", "config", "speak", "tables"}
PURE = {
    *(f"{room.replace('/', '.')}.{file.stem}"
      for room in ("scheduler", "scheduler/rules", "scheduler/tasks")
      for file in (ROOT / room).glob("[!_]*.py")),
    "scheduler.rules.__init__", "runs.buckets", "runs.crew", "live.feed", "stalls.split", "stalls.kinds",
    "doctor.facts", "doctor.plan", "doctor.functions", "doctor.predict", "doctor.advice", "doctor.screen",
    "memory.phases", "memory.cut.hoist", "memory.cut.source", "memory.cut.halves",
    "memory.cut.language", "fingerprint.names", "memory.cut.rewrite", "memory.cut.stepped", "memory.cut.callee",
    "memory.store.rows", "images.recipe", "loaders.driver.demand", "loaders.in_process.ahead", "loaders.in_process.evidence",
    "gradients.codes", "gradients.gate.costs", "gradients.gate.outlook", "gradients.gate.table",
    "gradients.gate.trial", "wire.frame", "wire.sections", "wire.arena.extents", "config", "errors", "tables", "reports.metrics",
    "reports.summary.__init__", "reports.summary.lines", "reports.summary.verdict", "remote.engines.hosts", "remote.net.control", "local.sizing",
    "verify.record", "verify.compare", "verify.table",
}  # fmt: skip
FILES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in ROOT.rglob("*.py")
}


def imports(module: str) -> Iterator[str]:
    """Full names of the modules that a file imports, wherever in the file it does."""
    for node in ast.walk(ast.parse(FILES[module].read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                yield inner if inner.removeprefix("stoker.") in FILES else str(node.module)


def ours(module: str) -> set[str]:
    """The modules of ours that a file imports, without the leading `stoker.`."""
    return {name.removeprefix("stoker.") for name in imports(module) if name.startswith("stoker.")}


def room_of(module: str) -> str:
    """The folder that has a row of its own in ARROWS; of a file beside them its own name."""
    folders = module.replace(".", "/")
    inside = [room for room in ARROWS if f"{folders}/".startswith(f"{room}/")]
    return max(inside, key=len, default=module)


def test_every_room_is_on_the_map():
    folders = {str(file.parent.relative_to(ROOT)) for file in FILES.values()} - {"."}
    assert folders - HALLS == {*ARROWS, *ALCOVES}


@pytest.mark.parametrize("room", ARROWS)
def test_a_room_imports_only_what_its_arrows_allow(room):
    everybody = CLI_MAY if room == "cli" else EVERYBODY_MAY
    wrong = {
        f"{module} -> {target}"
        for module in FILES
        if room_of(module) == room
        for target in ours(module)
        if target not in everybody and room_of(target) not in ARROWS[room] | {room}
    }
    assert wrong == set()


@pytest.mark.parametrize("module", sorted(PURE))
def test_a_pure_file_imports_only_the_standard_library_and_pure_files(module):
    wrong = {
        name
        for name in imports(module)
        if name.partition(".")[0] not in sys.stdlib_module_names
        and {name.removeprefix("stoker."), f"{name.removeprefix('stoker.')}.__init__"} & PURE
        == set()
    }
    assert wrong == set()


@pytest.mark.parametrize("module", sorted(EVERYBODY_MAY - {"reports.metrics"}))
def test_what_everybody_may_import_imports_no_room(module):
    assert {room_of(target) for target in ours(module)} & set(ARROWS) == set()


@pytest.mark.parametrize("room", [*ARROWS, *ALCOVES])
def test_a_room_is_small_enough_to_be_known(room):
    files = [file for file in (ROOT / room).glob("*.py") if file.stem != "__init__"]
    alcoves = [alcove for alcove in ALCOVES if Path(alcove).parent == Path(room)]
    assert len(files) + len(alcoves) <= LARGER.get(room, MAX_FILES)


@pytest.mark.parametrize("alcove", ALCOVES)
def test_others_use_of_an_alcove_what_its_door_shows(alcove):
    name = alcove.replace("/", ".")
    wrong = {
        f"{module} -> {target}"
        for module in FILES
        if not module.startswith(f"{name}.")
        for target in ours(module)
        if target.startswith(f"{name}.")
    }
    assert wrong == set()


def test_only_the_clock_reads_time():
    assert {module for module in FILES if "time" in imports(module)} == {"clock"}


def test_every_file_opens_with_its_job():
    silent = {
        m
        for m, f in FILES.items()
        if f.read_text() and not ast.get_docstring(ast.parse(f.read_text()))
    }
    assert silent == set()

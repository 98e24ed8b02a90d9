"""Prints `--also-full=PATH` for the tests of the full tier whose room the change touched.

The change: what is on this branch and not on origin's main; on main itself the last hours' commits,
as a clone does not know what was there before. Promise: prints nothing where git cannot tell, and
never more than BUDGET_MIN minutes' worth; what has no room there waits for `scripts/test --full`.
"""

import re
import subprocess

HOURS = 4
BUDGET_MIN = 12  # CI as a whole stops at 90; the default tier takes twelve
MINUTES = {  # of two processes, what the full tier has more than the default one
    "tests/bare/test_bare.py": 6,
    "tests/unit/gradients": 2,
    "tests/unit/memory": 9,  # thousands of bodies and changes
    "tests/unit/remote": 1,
    "tests/equality/test_matrix.py": 2,
    "tests/equality/test_kills.py": 2,
    "tests/equality/test_iterables.py": 2,
    "tests/equality/test_stateful.py": 4,
    "tests/equality/test_kept.py": 1,
    "tests/equality/test_fan_out.py": 1,
    "tests/equality/test_in_process.py": 6,
    "tests/equality/test_spawned.py": 1,
    "tests/equality/test_scripts.py": 5,
    "tests/equality/test_image_files.py": 2,
    "tests/process/test_arming.py": 1,
    "tests/process/test_away.py": 4,
    "tests/process/test_bad_inputs.py": 1,
    "tests/process/test_doctor.py": 4,
    "tests/process/test_ends.py": 3,
    "tests/process/test_gradients.py": 3,
    "tests/process/test_page.py": 1,
    "tests/process/test_parts.py": 2,
    "tests/process/test_printed.py": 1,
    "tests/process/test_probe.py": 2,
    "tests/process/test_runs.py": 1,
    "tests/process/test_split.py": 3,
    "tests/process/test_storage.py": 4,
    "tests/process/test_sanitized.py": 1,
    "tests/process/test_verify.py": 3,
}
ROOMS = {
    "scheduler": ["equality/test_kills", "equality/test_fan_out", "equality/test_matrix"],
    "loaders": [
        "equality/test_matrix", "equality/test_kept", "equality/test_kills",
        "equality/test_in_process", "equality/test_stateful",
    ],
    "worker": ["equality/test_matrix", "equality/test_iterables"],
    "wire": ["equality/test_kept", "equality/test_matrix"],
    "fingerprint": ["equality/test_fan_out", "equality/test_in_process"],
    "local": ["process/test_ends", "equality/test_spawned"],
    "remote": ["process/test_away", "process/test_parts", "process/test_printed"],
    "gradients": ["process/test_gradients", "process/test_probe"],
    "memory": ["equality/test_matrix"],
    "fast": ["equality/test_image_files"],
    "images": ["process/test_sanitized", "equality/test_image_files"],
    "verify": ["process/test_verify"],
    "reports": ["process/test_ends", "process/test_runs"],
    "runs": ["process/test_runs"],
    "live": ["process/test_page"],
    "stalls": ["process/test_split"],
    "storage": ["process/test_storage"],
    "doctor": ["process/test_doctor"],
    "api": ["process/test_arming"],
    "intercept": ["process/test_arming", "equality/test_scripts"],
    "cli": ["process/test_bad_inputs", "process/test_verify"],
}  # fmt: skip


def git(*words: str) -> str:
    ran = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    return ran.stdout.strip() if ran.returncode == 0 else ""


def base() -> str:
    head, fork = git("rev-parse", "HEAD"), git("merge-base", "HEAD", "origin/main")
    if fork and fork != head:
        return fork
    end_s = git("log", "-1", "--format=%ct")
    before = int(end_s) - HOURS * 3600 if end_s else 0
    return git("rev-list", "-1", f"--before={before}", "HEAD")


def chosen(changed: list[str]) -> list[str]:
    """That the package installs and works elsewhere; unit tests of the rooms, then others; then the
    tests that were changed themselves: as long as the budget lasts."""
    touched = {match[1] for path in changed if (match := re.match(r"src/stoker/(\w+)/", path))}
    packaged = [path for path in changed if path.startswith(("src/", "scripts/", "pyproject.toml"))]
    paths = ["tests/bare/test_bare.py"] if packaged else []
    paths += [path for room in sorted(touched) if (path := f"tests/unit/{room}") in MINUTES]
    paths += [f"tests/{test}.py" for room in ROOMS if room in touched for test in ROOMS[room]]
    paths += [path for path in changed if path in MINUTES]
    left_min, found = BUDGET_MIN, []
    for path in dict.fromkeys(paths):
        if MINUTES[path] <= left_min:
            left_min -= MINUTES[path]
            found.append(path)
    return found


if __name__ == "__main__":
    since = base()
    for path in chosen(git("diff", "--name-only", since, "HEAD").splitlines() if since else []):
        print(f"--also-full={path}")

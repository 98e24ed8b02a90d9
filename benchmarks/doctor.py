"""How well `stoker doctor` predicts what `stoker run` then delivers: one --case a script.

Runs the doctor, then the script with the flags of each prediction that it made of this machine, for some twenty seconds,
and compares the speed of the last third of them (of those of which samples are remembered, too). A
prediction holds if the speed is in its range, or a fifth beside it at most. Prints within_frac and the rows.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from made_data import made_once
from media import sounds
from one_side import print_line
from photos import photo_folder

from stoker.doctor.facts import Facts
from stoker.doctor.predict import predictions
from stoker.runs.file import read
from stoker.runs.folder import logs_in

ROOT = Path(__file__).resolve().parent.parent
RUN_S, REMEMBERED_RUN_S = 20, 45
FIFTH = 0.2
EXAMPLES, SCRIPTS = ROOT / "examples", ROOT / "tests/process/scripts"
IMAGES = [EXAMPLES / "images/train.py", "--epochs", "1000", "--data"]


def command_of(case: str) -> list[str]:
    words = {
        "images": lambda: [*IMAGES, photo_folder(), "--workers", "0"],
        "images-workers": lambda: [*IMAGES, photo_folder(), "--workers", "2"],
        "mel": lambda: [EXAMPLES / "audio/train.py", "--epochs", "1000", "--data", in_classes()],
        "pure": lambda: [SCRIPTS / "examined.py", "pure", "workers"],
        "model": lambda: [SCRIPTS / "split.py", "data=0.002,model=0.02", "1000000"],
    }[case]()
    return [sys.executable, *map(str, words)]


def in_classes() -> Path:
    """The sounds in two folders, one a class, as the example wants them."""

    def write(folder: Path) -> None:
        for k, file in enumerate(sorted(sounds().glob("*.wav"))):
            place = folder / str(k % 2) / file.name
            place.parent.mkdir(exist_ok=True)
            place.symlink_to(file)

    return made_once("sounds-5s-44k-512-in-classes", write)


def ran(command: list[str], environ: dict[str, str], limit_s: float) -> None:
    """Run a command, and end it as Ctrl-C does after so many seconds."""
    process = subprocess.Popen(
        command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )  # fmt: skip
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)


def rate_of(state: Path) -> float:
    """Return the samples a second of the last third of the newest run."""
    run = read(logs_in(state / "stoker/runs")[-1])
    assert run is not None and run.spans
    end_s = run.spans[-1].at_s + run.spans[-1].long_s
    last = [span for span in run.spans[:-1] if span.at_s >= 2 * end_s / 3]
    num = sum(row.num_samples for span in last for row in span.rows)
    return num / sum(span.long_s for span in last)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", required=True)
    flags = parser.parse_args()
    command = command_of(flags.case)
    environ = {k: v for k, v in os.environ.items() if not k.startswith("STOKER_")} | {
        "OMP_NUM_THREADS": "1"
    }
    stoker = [sys.executable, "-m", "stoker"]
    doctor = [*stoker, "doctor", "--json", "--", *command]
    told = subprocess.run(doctor, capture_output=True, text=True, env=environ)
    if told.returncode:
        sys.exit(f"{told.stdout}{told.stderr}")
    facts = Facts.from_json(json.loads(told.stdout.splitlines()[-1]))
    rows = []
    for each in predictions(facts):
        if each.num_away:
            continue
        with tempfile.TemporaryDirectory() as state:
            is_later = "remembered" in each.name
            run = [*stoker, "run", *each.flags.split(), "--no-stalls", "--", *command]
            if not is_later:
                run[4:4] = ["--cache", "off"]  # as it is before anything is remembered
            ran(run, environ | {"XDG_STATE_HOME": state}, REMEMBERED_RUN_S if is_later else RUN_S)
            rows.append((each.name, each.low, each.high, rate_of(Path(state))))
    held = [(1 - FIFTH) * low <= rate <= (1 + FIFTH) * high for _, low, high, rate in rows]
    for row, holds in zip(rows, held, strict=True):
        print(
            f"{row[0]}: {row[1]:.4g} to {row[2]:.4g} predicted, {row[3]:.4g} came{'' if holds else ': missed'}",
            file=sys.stderr,
        )
    print_line({"within_frac": sum(held) / len(held) if held else 1.0, "num_rows": len(rows)})


if __name__ == "__main__":
    main()

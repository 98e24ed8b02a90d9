"""`stoker run --page` and `--tensorboard` on real runs: what they show, whatever ends the run, and who may see it."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from stoker.runs.folder import logs_in
from tests.process.harness import ENVIRON, SCRIPTS, finished, marked, started, under_stoker
from tests.process.live import get, printed_url_of, told, url_of, wait_answered, wait_told

COMMAND = [sys.executable, "live.py"]


def keepers(running):
    return [pid for pid, what in marked(running.mark).items() if "keeper.py" in what]


@pytest.mark.parametrize("flags", [["--page"], ["--page", "--page-token=token"]])
def test_the_address_is_printed_before_the_command_does_anything(tmp_path, flags):
    (tmp_path / "token").write_text("of the cluster's own")
    command = [*under_stoker(*flags), "sh", "-c", 'read -r line; exec "$@"', "sh", sys.executable]
    with started(
        [*command, str(SCRIPTS / "live.py")], tmp_path, stdin=None, cwd=tmp_path
    ) as running:
        url = printed_url_of(running)
        running.say("begin")
        assert told(url_of(running))["first"] == 0
        assert url == url_of(running)
        running.say("exit")
        assert running.finish(but=keepers(running)).stderr.count("page: ") == 1


def test_a_page_lives_with_its_run_and_stays_for_who_has_it_open(tmp_path):
    with started([*under_stoker("--page"), *COMMAND], tmp_path, stdin=None) as running:
        url = url_of(running)
        assert url.startswith("http://127.0.0.1:")
        found = wait_told(
            url, lambda found: len(found["spans"]) > 2 and "crew" in found["spans"][-1]
        )
        now = found["now"]
        assert now["about"]["settings"]["page"] == "127.0.0.1:0"
        assert now["about"]["origins"]["page"] == "--page"
        assert now["about"]["command"][1:] == ["live.py"]
        (loader,) = now["loaders"]
        assert loader["offloaded"] and loader["num_samples"] == 2 * loader["num_batches"]
        assert loader["wait_s"] > loader["num_batches"] * 0.005  # two workers make a batch in 20 ms
        assert [len(span["crew"]) for span in found["spans"] if "crew" in span][-1] == 2
        assert now["host"]["all_nbytes"] > now["last"]["memory"] > 0
        later = wait_told(url, lambda f: len(f["spans"]) > len(found["spans"]))
        assert later["now"]["loaders"][0]["num_batches"] > loader["num_batches"]
        assert get(url, "/", token="wrong")[0] == 403
        running.say("exit")
        assert running.finish(but=keepers(running)).returncode == 0
        end = wait_told(url, lambda found: found["now"]["ended"] is not None)
        assert end["now"]["ended"] == "exit"
        rows = [row for span in end["spans"] for row in span["rows"]]
        assert sum(row[1] for row in rows) == end["now"]["loaders"][0]["num_batches"]


def test_workers_are_seen_at_work_and_lost(tmp_path):
    with started([*under_stoker("--page"), *COMMAND], tmp_path, stdin=None) as running:
        url = url_of(running)
        busy = wait_told(
            url, lambda f: f["spans"] and set(f["spans"][-1].get("crew", "")) & set("56789a")
        )
        assert [place[:2] for place in busy["now"]["places"]] == [[0, 0], [0, 1]]
        workers = [
            pid for pid, what in marked(running.mark).items()
            if "live.py" in what and "keeper.py" not in what and pid != running.process.pid
        ]  # fmt: skip
        os.kill(max(workers), signal.SIGKILL)
        lost = wait_told(url, lambda f: f["now"]["workers"]["lost"] == 1)
        assert lost["now"]["ended"] is None


@pytest.mark.parametrize("end", ["SIGKILL", "raise"])
def test_how_a_run_ended_is_shown(tmp_path, end):
    with started([*under_stoker("--page"), *COMMAND], tmp_path, stdin=None) as running:
        url = url_of(running)
        told(url)
        running.say(end)
        running.process.wait(60)
        found = wait_told(url, lambda found: found["now"]["ended"] is not None)
        assert found["now"]["ended"] == {"raise": "exception KeyError"}.get(end, end)


def test_a_page_that_nobody_has_open_ends_with_the_run(tmp_path):
    with started([*under_stoker("--page"), *COMMAND], tmp_path, stdin=None) as running:
        running.wait_for("in the loop")
        running.say("exit")
        result = running.finish()
        assert (result.returncode, result.leftovers) == (0, {})
        assert result.stderr.count("page: http://127.0.0.1:") == 1
        assert result.stdout == ""


def test_who_waits_for_the_end_of_stderr_does_not_wait_for_the_page(tmp_path):
    command = [*under_stoker("--page"), *COMMAND]
    environ = ENVIRON | {"XDG_STATE_HOME": str(tmp_path), "TELL_FD": "2"}
    with subprocess.Popen(
        command, cwd=SCRIPTS, env=environ, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        url = next(line for line in process.stderr if "page: " in line).split()[2]
        wait_answered(url)
        told(url)
        process.communicate("exit\n", timeout=60)
        assert process.returncode == 0
    assert wait_told(url, lambda found: found["now"]["ended"])["now"]["ended"] == "exit"
    (log,) = logs_in(tmp_path / "stoker" / "runs")
    listed = subprocess.run(
        [sys.executable, "-m", "stoker", "runs"], env=environ, capture_output=True, text=True
    )
    assert "running" not in listed.stdout and log.stem in listed.stdout


def test_a_port_that_is_taken_gives_another_one(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with started(
            [*under_stoker("--page", str(port)), *COMMAND], tmp_path, stdin=None
        ) as running:
            url = url_of(running)
            assert f":{port}/" not in url
            assert (
                f"stoker: 127.0.0.1:{port} cannot be had: Address already in use"
                in running.read("stderr")
            )
            assert told(url)["first"] == 0


def test_a_token_of_ones_own(tmp_path):
    (tmp_path / "token").write_text("of the cluster's own\n")
    flags = ["--page=0", f"--page-token={tmp_path / 'token'}"]
    with started([*under_stoker(*flags), *COMMAND], tmp_path, stdin=None) as running:
        url = url_of(running)
        assert get(url, "/metrics", token="of the cluster's own")[0] == 200
        assert get(url, "/metrics", token="of the cluster's")[0] == 403


def test_a_token_that_is_none_is_refused_before_the_run(tmp_path):
    (tmp_path / "token").write_text("short")
    for file, why in (("token", "holds no token"), ("nowhere", "cannot be read")):
        flags = ["--page", f"--page-token={tmp_path / file}"]
        result = finished([*under_stoker(*flags), *COMMAND], tmp_path)
        assert result.returncode == 2
        assert why in result.stderr


def test_plain_torch_has_a_page_too(tmp_path):
    flags = ["--page", "--off", "--no-run-log"]
    with started([*under_stoker(*flags), *COMMAND], tmp_path, stdin=None) as running:
        found = wait_told(url_of(running), lambda f: f["now"]["loaders"] and len(f["spans"]) > 1)
        assert not found["now"]["loaders"][0]["offloaded"]
        assert found["now"]["places"] == []


def test_where_nothing_can_be_shown_the_run_goes_on(tmp_path):
    flags = ["--page=192.0.2.1:0"]  # of no machine: RFC 5737
    result = finished([*under_stoker(*flags), sys.executable, "train.py", "end"], tmp_path)
    assert (result.returncode, result.leftovers) == (0, {})
    assert "stoker: there is no page: OSError: " in result.stderr


def test_metrics_and_scalars_tell_the_run(tmp_path):
    parser = pytest.importorskip("prometheus_client.parser")
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    flags = ["--page", f"--tensorboard={tmp_path / 'scalars'}"]
    with started([*under_stoker(*flags), *COMMAND], tmp_path, stdin=None) as running:
        url = url_of(running)
        wait_told(url, lambda found: found["now"]["loaders"])
        status, text = get(url, "/metrics")
        assert status == 200
        families = {f.name: f for f in parser.text_string_to_metric_families(text.decode())}
        (batches,) = families["stoker_loader_batches"].samples
        assert batches.labels["loader"].startswith("live.py:")
        assert batches.value > 0
        running.say("exit")
        assert running.process.wait(60) == 0
        num = wait_told(url, lambda found: found["now"]["ended"])["now"]["loaders"][0][
            "num_batches"
        ]
    (folder,) = (tmp_path / "scalars").iterdir()
    found = accumulators.EventAccumulator(str(folder)).Reload()
    (tag,) = [tag for tag in found.Tags()["scalars"] if tag.endswith("samples_per_second")]
    assert found.Scalars(tag)[-1].step == num


def test_a_script_may_put_anything_on_its_path(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, pathlib; sys.path += [pathlib.Path('x')]\n"
        "from torch.utils.data import DataLoader\n"
        "for _ in DataLoader(range(4), num_workers=1): pass\n"
    )
    for flags in ([], ["--page"]):
        result = finished(
            [*under_stoker(*flags, quiet=False), sys.executable, str(script)], tmp_path
        )
        assert result.returncode == 0
        assert "no report" not in result.stderr
    assert len(logs_in(tmp_path / "state" / "stoker" / "runs")) == 2


def test_where_nobody_can_show_it_the_user_is_told(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import ctypes; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans become its children\n"
        "from torch.utils.data import DataLoader\n"
        "for _ in DataLoader(range(4), num_workers=1): pass\n"
    )
    result = finished([*under_stoker("--page"), sys.executable, str(script)], tmp_path)
    assert result.returncode == 0
    assert "stoker: the run is not shown: in PID 1 and in a subreaper" in result.stderr


def test_a_disk_that_takes_no_scalars_leaves_the_page(tmp_path):
    pytest.importorskip("tensorboard")
    (tmp_path / "file").touch()
    flags = ["--page", f"--tensorboard={tmp_path / 'file' / 'in it'}"]
    with started([*under_stoker(*flags), *COMMAND], tmp_path, stdin=None) as running:
        assert told(url_of(running))["first"] == 0
        assert "stoker: no scalars are written: " in running.read("stderr")


@pytest.mark.full
def test_ranks_are_beside_each_other_on_the_first_ones_page(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environ = {"OMP_NUM_THREADS": "1"}
    command = [*under_stoker("--page"), *torchrun, "live.py"]
    with started(command, tmp_path, environ=environ) as running:
        url = url_of(running)
        ranks = wait_told(url, lambda found: len(found["now"]["ranks"]) == 2)["now"]["ranks"]
        assert [rank["rank"] for rank in ranks] == [0, 1]
        assert running.read("stderr").count("page: ") == 1

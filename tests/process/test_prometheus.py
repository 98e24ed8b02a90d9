"""A real Prometheus (Debian's) asks a real run for its metrics, and answers the dashboard's queries."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.process.harness import PATIENCE_S, started, under_stoker
from tests.process.live import get, url_of, wait_told

DEPLOY = Path(__file__).parents[2] / "deploy"
PANELS = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
# What a run without ranks and without lost workers has nothing of to show a rate of.
SILENT = {"Bytes of gradients"}

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's prometheus"),
]


@pytest.fixture
def scraped(tmp_path):
    """A run, and the address of a Prometheus that asks it once a second."""
    pytest.importorskip("prometheus_client")
    token = tmp_path / "token"
    token.write_text("a token of this test\n")
    flags = ["--page", f"--page-token={token}"]
    command = [*under_stoker(*flags), sys.executable, "live.py"]
    with started(command, tmp_path, stdin=None) as running:
        url = url_of(running)
        wait_told(url, lambda found: len(found["spans"]) > 1)
        config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
        config["global"]["scrape_interval"] = "1s"
        (job,) = config["scrape_configs"]
        job["authorization"]["credentials_file"] = str(token)
        job["static_configs"][0]["targets"] = [urllib.parse.urlsplit(url).netloc]
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        own = [
            "prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]  # fmt: skip
        with (
            (tmp_path / "prometheus.log").open("wb") as log,
            subprocess.Popen(own, stderr=log) as process,
        ):
            yield url, f"http://127.0.0.1:{port}", process
            process.terminate()


def answer(address, query):
    """What Prometheus says to a query; nothing while it starts."""
    path = f"{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(path, timeout=10) as answered:
            return json.load(answered)["data"]["result"]
    except (OSError, ValueError):
        return []


def wait_answered(address, query, process):
    end_s = time.monotonic() + PATIENCE_S
    while not (found := answer(address, query)):
        assert process.poll() is None and time.monotonic() < end_s, query
        time.sleep(0.2)  # it scrapes once a second
    return found


def test_prometheus_answers_every_query_of_the_dashboard(scraped):
    _, address, process = scraped
    for panel in PANELS:
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", "5s").replace("$run", ".*")
            found = wait_answered(address, query, process)
            assert (
                all(sample["value"][1] != "NaN" for sample in found) or panel["title"] in SILENT
            ), query
    (up,) = answer(address, "up")
    assert up["value"][1] == "1"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_promtool_has_nothing_to_say_of_the_metrics(scraped):
    text = get(scraped[0], "/metrics")[1]
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")

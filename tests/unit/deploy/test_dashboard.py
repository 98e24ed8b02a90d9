"""deploy/grafana.json: a dashboard of this form, whose every query asks for metrics that a run has."""

import json
import re
from pathlib import Path

import pytest
import yaml

from stoker.live.metrics import metrics_of
from tests.unit.live.feeds import a_feed

DEPLOY = Path(__file__).parents[3] / "deploy"
BOARD = json.loads((DEPLOY / "grafana.json").read_text())
QUERIES = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]


def test_every_query_asks_for_what_there_is():
    pytest.importorskip("prometheus_client")
    text = metrics_of(a_feed(3).state)[0].decode()
    there = set(re.findall(r"^(stoker_\w+)\{", text, re.MULTILINE))
    variables = [v["query"]["query"] for v in BOARD["templating"]["list"] if v["type"] == "query"]
    asked = {name for query in (*QUERIES, *variables) for name in re.findall(r"stoker_\w+", query)}
    assert asked <= there
    assert len(asked) > 10


def test_labels_that_are_asked_for_are_there():
    pytest.importorskip("prometheus_client")
    text = metrics_of(a_feed(3).state)[0].decode()
    there = set(re.findall(r'(\w+)="', text)) | {"instance"}  # Prometheus' own
    asked = {
        label.strip()
        for query in QUERIES
        for by in re.findall(r"by \(([^)]*)\)", query)
        for label in by.split(",")
    }
    legends = {
        label
        for panel in BOARD["panels"]
        for t in panel["targets"]
        for label in re.findall(r"{{(\w+)}}", t["legendFormat"])
    }
    assert asked | legends <= there


def test_panels_have_numbers_of_their_own_and_lie_beside_each_other():
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    for panel in panels:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])


def test_prometheus_reads_the_token_from_a_file():
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
    assert job["authorization"] == {"credentials_file": "/etc/stoker/token"}
    assert "metrics_path" not in job  # /metrics is its own default

"""Tells a run's state to Prometheus. Names and units: prometheus.io, Metric and label naming."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# name, help, key: counters and gauges of one loader, then of the run.
_OF_LOADER = (
    ("batches", "Batches delivered to the training loop.", "num_batches"),
    ("samples", "Samples delivered to the training loop.", "num_samples"),
    ("iterators", "Iterators made: epochs, unless one lives for several.", "num_iters"),
    ("wait_seconds", "Time that the training loop waited for batches.", "wait_s"),
    ("busy_seconds", "Time that the training loop had a batch and did something else.", "busy_s"),
    ("raw_bytes", "Bytes of tensors and arrays that came, wherever they travelled.", "raw_nbytes"),
    ("wire_bytes", "Bytes of batches that came through sockets.", "wire_nbytes"),
    ("away_batches", "Batches that other machines made.", "num_away"),
)
_OF_WORKERS = (
    ("workers_started", "Worker processes started.", "started"),
    ("workers_lost", "Worker processes that ended before their work did.", "lost"),
    ("batches_replayed", "Batches made again after a worker was lost.", "replayed"),
    ("batches_hedged", "Batches that a second worker was asked for.", "hedged"),
)


def metrics_of(state: Mapping[str, Any]) -> tuple[bytes, str] | None:
    """Return the metrics and their content type; None where prometheus-client is missing. state: Feed.state."""
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
    except ImportError:
        return None
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(state))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Collector:
    def __init__(self, state: Mapping[str, Any]) -> None:
        self._state = state

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        state = self._state
        if not state:
            return
        rank = str(state["about"].get("rank") if state["about"].get("rank") is not None else "")
        for name, help_, key in _OF_LOADER:
            family = CounterMetricFamily(f"stoker_loader_{name}", help_, labels=["loader", "rank"])
            for loader in _by_place(state["loaders"]):
                family.add_metric([loader["place"], rank], loader[key])
            yield family
        family = CounterMetricFamily(
            "stoker_loader_step_seconds",
            "Where the time of steps went, by part.",
            labels=["loader", "rank", "part"],
        )
        for loader in _by_place(state["loaders"]):
            for part, part_s in loader["split"].items():
                family.add_metric([loader["place"], rank, part.removesuffix("_s")], part_s)
        yield family
        for name, help_, key in _OF_WORKERS:
            family = CounterMetricFamily(f"stoker_{name}", help_, labels=["rank"])
            family.add_metric([rank], state["workers"][key])
            yield family
        gradients = CounterMetricFamily(
            "stoker_gradient_bytes",
            "Bytes of gradients sent to other ranks.",
            labels=["rank", "as"],
        )
        for how in ("raw", "wire"):
            gradients.add_metric([rank, how], state["gradients"][f"{how}_nbytes"])
        yield gradients
        yield from _storage(state["storage"], rank)
        last = state["last"]
        gauges = {
            "stoker_batches_ready": ("Batches that waited for the training loop, in the mean of a second.", last["ready"]),
            "stoker_remembered_bytes": ("Memory that remembered work takes.", last["kept"]),
            "stoker_host_cpu_ratio": ("Share of this machine's cores that was used.", last["cpu"]),
            "stoker_host_memory_bytes": ("Memory of this machine that is used.", last["memory"]),
            "stoker_run_seconds": ("How long the run has lasted.", state["run_s"]),
            "stoker_run_ended": ("Whether the run has ended.", state["ended"] is not None),
        }  # fmt: skip
        for name, (help_, value) in gauges.items():
            gauge = GaugeMetricFamily(name, help_, labels=["rank"])
            gauge.add_metric([rank], float("nan") if value is None else value)
            yield gauge


def _storage(rows: list[dict[str, Any]], rank: str) -> "Iterator[Metric]":
    """What was read for mounts; nothing where there are none."""
    from prometheus_client.core import CounterMetricFamily

    if not rows:
        return
    labels = ["rank", "machines"]
    nbytes = CounterMetricFamily(
        "stoker_storage_bytes",
        "Bytes of mounts that were read, by where they were: the origin, other machines, the cache.",
        labels=[*labels, "where"],
    )
    requests = CounterMetricFamily(
        "stoker_storage_requests", "Requests that origins of mounts were sent.", labels=labels
    )
    waits = CounterMetricFamily(
        "stoker_storage_wait_seconds",
        "Time that workers waited for files of mounts.",
        labels=labels,
    )
    for row in rows:
        own = [rank, row["machines"]]
        for where, key in (("origin", "remote"), ("peers", "peer"), ("cache", "cache")):
            nbytes.add_metric([*own, where], row[f"{key}_nbytes"])
        requests.add_metric(own, row["num_requests"])
        waits.add_metric(own, row["wait_s"])
    yield from (nbytes, requests, waits)


def _by_place(loaders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return loaders with different places: several of one line are numbered."""
    seen: dict[str, int] = {}
    found = []
    for loader in loaders:
        seen[loader["place"]] = num = seen.get(loader["place"], 0) + 1
        found.append(
            loader | {"place": loader["place"] if num == 1 else f"{loader['place']} #{num}"}
        )
    return found

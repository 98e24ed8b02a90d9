"""Writes a run's state as scalars for TensorBoard, with its own package: one point every ten seconds, and the last.

The step of a point is the number of batches delivered so far, of all loaders.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

EVERY_S = 10.0


class Scalars:
    """Writes into a folder of the run's own. Raises ImportError without tensorboard, OSError where nothing can be written."""

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        rank = "" if about["rank"] is None else f"-rank{about['rank']}"
        name = f"stoker-{int(about['began_unix_s'])}-{about['pid']}{rank}"
        self._writer = EventFileWriter(str(folder / name), flush_secs=int(EVERY_S))
        self._began_unix_s: float = about["began_unix_s"]
        self._written_s = 0.0
        self._before: Mapping[str, Any] | None = None

    def write(self, state: Mapping[str, Any]) -> None:
        """Add a point, if the last one is old enough or the run has ended. state: Feed.state."""
        if state["run_s"] < self._written_s:  # the run's time counts from its first loader on
            self._written_s, self._before = 0.0, None
        is_due = state["run_s"] - self._written_s >= EVERY_S
        if not is_due and state["ended"] is None:
            return
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=tag, simple_value=value)
            for tag, value in points_of(self._before, state).items()
        ]
        step = sum(loader["num_batches"] for loader in state["loaders"])
        wall_s = self._began_unix_s + state["run_s"]
        self._writer.add_event(Event(wall_time=wall_s, step=step, summary=Summary(value=values)))
        self._written_s, self._before = state["run_s"], state

    def close(self) -> None:
        self._writer.close()


def points_of(before: Mapping[str, Any] | None, state: Mapping[str, Any]) -> dict[str, float]:
    """Return the scalars by tag, of the time since `before`; None: since the run began. Pure."""
    old = {loader["number"]: loader for loader in before["loaders"]} if before else {}
    long_s = state["run_s"] - (before["run_s"] if before else 0.0)
    found: dict[str, float] = {}
    for loader in state["loaders"]:
        was = old.get(loader["number"])
        split = {
            part: s - (was["split"][part] if was else 0.0) for part, s in loader["split"].items()
        }
        total_s = sum(split.values())
        if total_s <= 0:
            continue
        tag = f"stoker/{loader['place']}"
        num_samples = loader["num_samples"] - (was["num_samples"] if was else 0)
        found[f"{tag}/samples_per_second"] = num_samples / long_s if long_s > 0 else 0.0
        for part, part_s in split.items():
            if part_s > 0:
                found[f"{tag}/share_{part.removesuffix('_s')}"] = part_s / total_s
    last = state["last"]
    if last["ready"] is not None:
        found["stoker/batches_ready"] = last["ready"]
    return found

"""Adds up what a run's workers tell of the faster ways that they took.

Owner: the trainer, whose workers send what is new with their batches; from every machine.
"""

import json
from dataclasses import astuple, replace
from typing import NamedTuple

from stoker.reports.metrics import FastPlace

NUM_PROVE = 4  # results of a place that are compared, by all workers, before it is used without


class FastWish(NamedTuple):
    """Says what a loader wants of faster ways. audit: compare everything; known: places, by name: why they are
    left alone, or nothing if they were compared often enough."""

    audit: bool
    known: dict[str, str]


def pack_news(places: list[FastPlace]) -> bytes:
    """Pack what a worker has to tell, as a section of a frame."""
    return json.dumps([astuple(place) for place in places]).encode()


class Report:
    """Keeps what is known of all places of a run."""

    def __init__(self) -> None:
        self._places: dict[str, FastPlace] = {}

    def take_in(self, news: bytes) -> None:
        for name, *counts in json.loads(news):
            self._places.setdefault(name, FastPlace(name)).add(*counts)

    def places(self) -> list[FastPlace]:
        """Return copies, as they are at this moment."""
        return [replace(place) for place in self._places.values()]

    def wish(self, audit: bool) -> FastWish:
        """Return what the workers of a loader that begins now are told."""
        known = {
            name: place.why
            for name, place in self._places.items()
            if place.why or place.num_checked >= NUM_PROVE
        }
        return FastWish(audit, known)


report = Report()  # this process's

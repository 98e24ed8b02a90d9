"""What the tests of deploy/ read: the files, as those who will read them would."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
CLOUDS = ("aws", "gcp", "azure")
RAY = "2.60"  # the one that stoker's tests run with


def cloud(name: str) -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / f"{name}.yaml").read_text())


def kuberay() -> tuple[dict[str, Any], dict[str, Any]]:
    """(the RayCluster, the NetworkPolicy)"""
    cluster, policy = yaml.safe_load_all((DEPLOY / "kuberay.yaml").read_text())
    return cluster, policy


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    spec = kuberay()[0]["spec"]
    yield "head", spec["headGroupSpec"]["template"]
    for group in spec["workerGroupSpecs"]:
        yield "worker", group["template"]


def optional(module: str) -> ModuleType:
    return pytest.importorskip(module, reason=f"{module} is not installed: its schema is not here")

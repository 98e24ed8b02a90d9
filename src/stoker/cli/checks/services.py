"""Checks that what a flag asks for can be had here: libraries, and somebody who answers."""

import os
import sys
from os.path import join

from stoker.errors import ClusterUnavailable, ConfigError

CLUSTER_ANSWERS_WITHIN_S = 5.0
LEAST_TOKEN = 8  # characters


def check_gradients(who: str) -> None:
    """Check that gradients can be compressed here. who: asked for it.

    Raises ConfigError if a library is missing.
    """
    from importlib.util import find_spec

    missing = [name for name in ("numba", "numpy") if find_spec(name) is None]
    if missing:
        raise ConfigError(needs(who, missing, "gradients"))


def check_page(token_file: str | None) -> None:
    """Check that a page's token can be read. Raises ConfigError."""
    if token_file is None:
        return
    try:
        with open(token_file, encoding="utf-8") as opened:
            text = opened.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"page_token: cannot be read: {error}") from None
    if len(text) < LEAST_TOKEN or not text.isascii() or not text.isprintable():
        raise ConfigError(
            f"page_token: {token_file} holds no token: {LEAST_TOKEN} printable characters of ASCII at least"
        )


def check_tensorboard(who: str) -> None:
    """Check that scalars can be written here. who: asked for it. Raises ConfigError if a library is missing."""
    from importlib.util import find_spec

    if find_spec("tensorboard") is None:
        raise ConfigError(needs(who, ["tensorboard"], "metrics"))


def needs(who: str, missing: list[str], extra: str) -> str:
    from stoker.cli.checks.origin import advice

    return f"{who} needs {', '.join(missing)}: {advice(sys.executable, extra)}"


def check_cluster(address: str, who: str) -> None:
    """Check that a cluster can be used here and that something answers there. who: named it.

    Raises ConfigError if a library is missing, ClusterUnavailable if nothing answers. What answers
    is asked who it is later, by the process that uses it.
    """
    from importlib.util import find_spec

    is_ray = not address.startswith("processes:")
    needed = ["cloudpickle", "cryptography", "xxhash", *(["ray"] if is_ray else [])]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise ConfigError(needs(who, missing, "cluster"))
    if is_ray:
        _knock(_current_cluster(who) if address == "auto" else address.removeprefix("ray://"), who)


def _current_cluster(who: str) -> str:
    """Read the address that `ray start` on this machine has noted. Source: Ray 2.60, ray.init."""
    if os.environ.get("RAY_ADDRESS", "auto") != "auto":
        return os.environ["RAY_ADDRESS"].removeprefix("ray://")
    file = join(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
    try:
        with open(file, encoding="ascii") as opened:
            return opened.read().strip()
    except OSError:
        raise ClusterUnavailable(
            f"{who} auto: no Ray runs on this machine; start it with `ray start --head`, or "
            "name one: --cluster HOST:PORT"
        ) from None


def _knock(address: str, who: str) -> None:
    import socket

    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CLUSTER_ANSWERS_WITHIN_S).close()
    except (OSError, ValueError) as error:
        raise ClusterUnavailable(
            f"{who}: nobody answers at {address} ({error}); start a Ray cluster there, or drop "
            f"{who} to use this machine"
        ) from None

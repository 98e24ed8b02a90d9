"""Authenticates trainer and host by a token that both sides prove, and compares their versions.

Promise: nothing that a stranger sends is unpickled or kept; before a peer has proved that it holds
the token at most HELLO_LIMIT_NBYTES are read of it, and are parsed, as JSON, only after the proof.

    trainer: version, nonce T
    worker:  nonce W, hello, HMAC(token, "worker", T, W, hello)
    trainer: answer, HMAC(token, "trainer", W, T, answer)
"""

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from stoker.clock import Deadline
from stoker.remote.net.tls import client_context

MAGIC = b"stoker"
VERSION = 1  # of the handshake and of the frames after it
TOKEN_NBYTES = NONCE_NBYTES = MAC_NBYTES = 32
HELLO_LIMIT_NBYTES = 16 << 10
AGAIN_S = 0.1  # a fifth of what a stranger's place is its own for (listener.py)
_GREETING = struct.Struct(f"<6sH{NONCE_NBYTES}s")
_LENGTH = struct.Struct("<I")


class Stranger(Exception):
    """Raised if a peer did not prove that it belongs to this run, or is refused; says why."""


class TurnedAway(Stranger):
    """Raised if the trainer hung up before its greeting: too many peers shake hands just now."""


class Pass(NamedTuple):
    """All that a host needs to dial a trainer. certificate: PEM, pinned by TLS; empty: no TLS.
    Secret: it is sent through the cluster's own, authenticated channels only."""

    address: str
    port: int
    token: bytes
    certificate: str = ""


def pass_of(way: Mapping[str, Any]) -> Pass:
    """Return what a Way (remote/engines/engine.py) tells of it."""
    return Pass(way["address"], way["port"], bytes.fromhex(way["token"]), way["certificate"])


def make_token() -> bytes:
    return secrets.token_bytes(TOKEN_NBYTES)


Hello = dict[str, str | int]  # who a host is, and its versions

# -- the handshake -----------------------------------------------------------------------------


def admit(sock: socket.socket, token: bytes, look: Callable[[Hello], str]) -> Hello:
    """Run the trainer's side of the handshake on a blocking socket, whose timeout is for all of it.
    Returns the host's hello.

    look(hello): why this host is refused although it holds the token; empty: it is not.
    Raises Stranger; OSError, also on a timeout.
    """
    deadline = Deadline(sock.gettimeout())
    nonce = secrets.token_bytes(NONCE_NBYTES)
    sock.sendall(_GREETING.pack(MAGIC, VERSION, nonce))
    theirs = _receive(sock, NONCE_NBYTES, deadline)
    body = _receive_sized(sock, deadline)
    mac = _receive(sock, MAC_NBYTES, deadline)
    if not hmac.compare_digest(mac, _mac(token, b"worker", nonce, theirs, body)):
        raise Stranger("it does not hold this run's token")
    hello: Hello = json.loads(body)
    why = look(hello)
    answer = json.dumps({"refused": why}).encode()
    proof = _mac(token, b"trainer", theirs, nonce, answer)
    sock.sendall(_LENGTH.pack(len(answer)) + answer + proof)
    if why:
        raise Stranger(why)
    return hello


def introduce(sock: socket.socket, token: bytes, hello: Hello) -> None:
    """Run the host's side of the handshake on a blocking socket, whose timeout is for all of it.

    Raises Stranger; OSError, also on a timeout.
    """
    deadline = Deadline(sock.gettimeout())
    try:
        greeting = _receive(sock, _GREETING.size, deadline)
    except (ConnectionError, Stranger) as error:
        raise TurnedAway(str(error)) from None
    magic, version, theirs = _GREETING.unpack(greeting)
    if magic != MAGIC:
        raise Stranger("whoever answers there is not stoker")
    if version != VERSION:
        raise Stranger(f"the trainer speaks version {version} of the protocol, this is {VERSION}")
    nonce, body = secrets.token_bytes(NONCE_NBYTES), json.dumps(hello).encode()
    mac = _mac(token, b"worker", theirs, nonce, body)
    sock.sendall(nonce + _LENGTH.pack(len(body)) + body + mac)
    answer = _receive_sized(sock, deadline)
    proof = _receive(sock, MAC_NBYTES, deadline)
    if not hmac.compare_digest(proof, _mac(token, b"trainer", nonce, theirs, answer)):
        raise Stranger("the trainer does not hold this run's token")
    why = json.loads(answer)["refused"]
    if why:
        raise Stranger(why)


def _mac(token: bytes, *parts: bytes) -> bytes:
    """Return the HMAC of the parts, each after its length: no two lists of parts give the same."""
    framed = b"".join(_LENGTH.pack(len(part)) + part for part in parts)
    return hmac.digest(token, framed, hashlib.sha256)


def _receive(sock: socket.socket, nbytes: int, deadline: Deadline) -> bytes:
    data = bytearray()
    while len(data) < nbytes:
        if deadline.is_over():  # a peer that drips a byte now and then is as bad as a silent one
            raise TimeoutError("timed out in the handshake")
        sock.settimeout(deadline.left_s())
        piece = sock.recv(nbytes - len(data))
        if not piece:
            raise Stranger("it hung up in the handshake")
        data += piece
    return bytes(data)


def _receive_sized(sock: socket.socket, deadline: Deadline) -> bytes:
    (nbytes,) = _LENGTH.unpack(_receive(sock, _LENGTH.size, deadline))
    if nbytes > HELLO_LIMIT_NBYTES:
        raise Stranger(f"its hello claims {nbytes} bytes")
    return _receive(sock, nbytes, deadline)


# -- dialling -------------------------------------------------------------------------------------


# As it shows, by how far the handshake had come.
_HUNG_UP = (
    TurnedAway, ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError, BrokenPipeError,
)  # fmt: skip


def dial(way: Pass, hello: Hello, timeout_s: float) -> socket.socket:
    """Connect to the trainer; returns a blocking socket on which both sides have proved the token.

    Tries again while too many peers shake hands. Raises OSError if nothing answers or the
    certificate is another's (ssl.SSLError); Stranger.
    """
    deadline = Deadline(timeout_s)
    while True:
        try:
            return _dial_once(way, hello, timeout_s)
        except _HUNG_UP:
            if deadline.is_over():
                raise
            threading.Event().wait(AGAIN_S)


def _dial_once(way: Pass, hello: Hello, timeout_s: float) -> socket.socket:
    sock = socket.create_connection((way.address, way.port), timeout_s)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if way.certificate:
            sock = client_context(way.certificate).wrap_socket(sock)
        introduce(sock, way.token, hello)
    except BaseException:
        sock.close()
        raise
    return sock


# -- what must be alike --------------------------------------------------------------------------


# Modules whose code is taken to be alike where their versions are, and what they are installed as.
_DECODERS = {
    "PIL": "pillow", "torchvision": "torchvision", "torchaudio": "torchaudio", "scipy": "scipy",
    "torchcodec": "torchcodec", "av": "av", "cv2": "opencv-python", "soundfile": "soundfile",
    "skimage": "scikit-image",
}  # fmt: skip


def versions(of_all: bool = False) -> dict[str, str]:
    """Return the versions that decide a batch's bits and are compared when a host is admitted.

    of_all: of all installed decoders, not only of those that this process has imported.
    """
    import importlib.metadata
    import platform
    import sys

    import numpy
    import torch

    import stoker

    found = {}
    for module, name in _DECODERS.items():
        if of_all or module in sys.modules:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found[name] = importlib.metadata.version(name)
    return {
        "stoker": stoker.__version__,
        "Python": platform.python_version().rpartition(".")[0],
        "torch": torch.__version__.partition("+")[0],  # CPU and CUDA builds alike
        "NumPy": numpy.__version__,
        "machine": platform.machine(),
        # torch chooses its loops by it, and their last bits differ.
        "CPU capability": torch.backends.cpu.get_cpu_capability(),
        **found,
    }


def why_unlike(ours: dict[str, str], theirs: Hello) -> str:
    """Name the first version that differs, with both values; empty if all are alike."""
    for name, version in ours.items():
        if theirs.get(name) != version:
            return f"{name} {theirs.get(name)} there, {version} at the trainer"
    return ""

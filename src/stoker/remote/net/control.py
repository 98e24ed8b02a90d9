"""Defines the messages of trainer and receiver, and the heads of those between receiver and host.

Promise: a message is one of these types, with as many fields, or decode() raises ValueError: what
comes from a host is never unpickled.
Pure: standard library only.
"""

import json
from enum import Enum
from typing import NamedTuple

from stoker.scheduler.tasks.slot import Role, Slot

VERSION = 4  # of these types: changed with any of them
MESSAGE_NBYTES = 64 << 10  # the longest
TEXT_LIMIT = 2000  # characters of a reason: the text of somebody's exception may be of any length


class Cause(Enum):
    """Why a worker on another machine is gone."""

    OWN_END = "it ended by itself, or was killed"
    LOST = "its machine or the way there was lost, or none is left for it"
    GIVEN_BACK = "its machine was given back, for fewer are wanted"


# -- trainer -> receiver ---------------------------------------------------------------------------


class Open(NamedTuple):
    """Announces a job that is being packed: its manifest and bytes come through the one descriptor
    that is sent along, a socket."""

    job: int


class Start(NamedTuple):
    """Starts a worker. generation: counts the workers of its slot; arena: the trainer's number.
    Two descriptors come along: of the worker's socket and of the arena."""

    job: int
    slot: Slot
    generation: int
    arena: int
    arena_nbytes: int


class Signal(NamedTuple):
    job: int
    slot: Slot
    generation: int
    signum: int


class Close(NamedTuple):
    """Ends a job."""

    job: int


class Drop(NamedTuple):
    """Says that the trainer has given an arena up; no worker has it."""

    arena: int


class Want(NamedTuple):
    """Says how many CPUs of other machines are wanted."""

    num_cpus: int


# -- receiver -> trainer ---------------------------------------------------------------------------


class Beat(NamedTuple):
    """A heartbeat, if there is nothing else to say."""


class Packed(NamedTuple):
    """Says that a job is packed. fingerprint: of the job at iter(), as hex digits."""

    job: int
    fingerprint: str


class Capacity(NamedTuple):
    """Says which hosts have unpacked the job, and with how many CPUs, each for one of its workers."""

    job: int
    cpus: dict[str, int]


class Started(NamedTuple):
    job: int
    slot: Slot
    generation: int
    pid: int
    node: str
    host: str


class Ended(NamedTuple):
    """Says how a worker ended. code: as of an Exit, None if unknown; why: in words, if it did not
    end by itself; begun: see scheduler.events.Lost."""

    job: int
    slot: Slot
    generation: int
    pid: int
    code: int | None = None
    cause: Cause = Cause.OWN_END
    why: str = ""
    begun: int | None = None


class Joined(NamedTuple):
    """Says that a host has come, or has another number of CPUs for this run."""

    host: str
    at_s: float
    num_cpus: int
    is_new: bool


class Left(NamedTuple):
    """Says that a host is gone. is_lost: it had not been given back."""

    host: str
    at_s: float
    why: str
    is_lost: bool


class Cannot(NamedTuple):
    """Says that a job is not served: by one node; by none, if its name is empty."""

    job: int
    node: str
    why: str


class NoEngine(NamedTuple):
    why: str


class Remembered(NamedTuple):
    """Says what is remembered of one place on one machine; also the head of Word.REMEMBERED, where
    the host is empty. host: that tells it, one of a machine; key: of the place, as hex digits; why: it
    is left alone; has_differed: for a sample differed, so that it is to be left alone everywhere;
    counts: those of phases.Counts."""

    host: str
    key: str
    name: str
    why: str
    has_differed: bool
    counts: list[int]


class FilesSent(NamedTuple):
    """Says how many bytes of files of this machine were sent to machines that lack them, in all."""

    nbytes: int


class StorageAway(NamedTuple):
    """Says what other machines have read of files, added up. read: JSON, by name (storage/reading/stats.py)."""

    read: str


class Note(NamedTuple):
    """A message for the user."""

    text: str


# -- heads, between receiver and host --------------------------------------------------------------


class Begin(NamedTuple):
    """The head of Word.START."""

    job: int
    slot: Slot


class Exited(NamedTuple):
    """The head of Word.ENDED. code: as of an Exit; begun: the id of the task that it was making, or
    marks.NOTHING."""

    pid: int
    code: int
    begun: int


class Digests(NamedTuple):
    """The head of Word.WANT: digests of the parts of a job that the host lacks."""

    of: list[str]


Message = (
    Open
    | Start
    | Signal
    | Close
    | Drop
    | Want
    | Beat
    | Packed
    | Capacity
    | Started
    | Ended
    | Joined
    | Left
    | Cannot
    | FilesSent
    | StorageAway
    | NoEngine
    | Remembered
    | Note
    | Begin
    | Exited
    | Digests
)
_TYPES: dict[str, type[Message]] = {kind.__name__: kind for kind in Message.__args__}


def encode(message: Message) -> bytes:
    fields = [_short(field) for field in message]
    return json.dumps([VERSION, type(message).__name__, *fields]).encode()


def _short(field: object) -> object:
    if isinstance(field, Cause):
        return field.name
    return field[:TEXT_LIMIT] if isinstance(field, str) else field


def decode(data: bytes | memoryview) -> Message:
    """Decode a message. Raises ValueError for anything that encode() did not make."""
    try:
        version, name, *fields = json.loads(bytes(data))
        if version != VERSION:
            raise ValueError(f"version {version}, not {VERSION}")
        kind = _TYPES[name]
        named = dict(zip(kind._fields, fields, strict=True))
        if "slot" in named:
            role, number = named["slot"]
            named["slot"] = Slot(Role(role), number)
        if "cause" in named:
            named["cause"] = Cause[named["cause"]]
        return kind(**named)
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"no message of ours: {error!r}") from error

"""Decides which files of the script's folder, and which variables, are sent to other machines.

Promise: a home folder, or one that holds a home folder, is never sent as a whole; nor is an entry
whose name begins with a dot or is usual for a secret, a link that leads out of the folder, or a
variable that looks like a secret, unless the user named it. Standard library only.
"""

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

# Code is small, and Ray's own limit is 100 MiB; data lies where workers find it by its path.
FOLDER_LIMIT_NBYTES = 100 << 20
FILE_LIMIT_NBYTES = 1 << 20
MAX_FILES = 10_000
_NOT_CODE = {"venv", "__pycache__", "wandb", "node_modules"}
_SECRET_FILES = (
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.ppk", "*.gpg", "*.kdbx", "*.env", "id_rsa*",
    "id_dsa*", "id_ecdsa*", "id_ed25519*", "netrc", "_netrc", "htpasswd", "kubeconfig*",
    "kaggle.json", "token", "token.*", "credentials", "credentials.*", "client_secret*",
    "secrets.*", "service[-_]account*",
)  # fmt: skip
_SECRET_WORDS = {
    "APIKEY", "AUTH", "AUTHORIZATION", "COOKIE", "CREDENTIAL", "CREDENTIALS", "CREDS", "KEY", "PASS",
    "PASSPHRASE", "PASSWD", "PASSWORD", "PAT", "PWD", "SECRET", "SECRETS", "TOKEN", "TOKENS",
}  # fmt: skip
# What belongs to a machine or to the process that serves it, not to the script.
_OF_THE_MACHINE = {
    "HOME", "HOST", "HOSTNAME", "LOGNAME", "MAIL", "OLDPWD", "PATH", "PWD", "SHELL", "SHLVL",
    "TEMP", "TERM", "TMP", "TMPDIR", "USER", "USERNAME", "VIRTUAL_ENV", "_",
}  # fmt: skip
_OF_THE_MACHINE_PREFIXES = (
    "CUDA_", "DBUS_", "DISPLAY", "KUBERNETES_", "LD_", "MALLOC_", "NVIDIA_", "PYTHON", "RAY_",
    "SLURM", "SSH_", "STOKER_", "XDG_",
)  # fmt: skip
SEND_ENV = "STOKER_SEND_ENV"
_URL_WITH_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]+@")


@dataclass(frozen=True, slots=True)
class Shipment:
    """Files of a folder to be sent, by their names in it. said: one line for the user;
    too_large: files that stay, as they are data rather than code."""

    folder: str
    files: tuple[str, ...]
    said: str
    too_large: tuple[str, ...] = ()

    def copy_to(self, target: str) -> None:
        """Copy those that still exist, as they are now. Raises OSError if `target` is full."""
        for name in self.files:
            copy = Path(target, name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copy(Path(self.folder, name), copy)
            except OSError:
                continue


def shipment(folder: str, home: str) -> Shipment:
    """Choose what is sent of the script's folder. home: the user's home folder."""
    is_shared = _is_shared(Path(folder).resolve(), Path(home).resolve())
    names: list[str] = []
    too_large: list[str] = []
    nbytes = 0
    for name, size in _code(Path(folder), is_flat=is_shared):
        if size > FILE_LIMIT_NBYTES:
            too_large.append(name)
            continue
        names.append(name)
        nbytes += size
        if nbytes > FOLDER_LIMIT_NBYTES or len(names) > MAX_FILES:
            limits = f"{MAX_FILES:,} files or {FOLDER_LIMIT_NBYTES >> 20} MiB"
            why = f"nothing of {folder} travels to the workers: it holds more than {limits}"
            return Shipment(folder, (), f"{why}; put the script into a folder of its own")
    num, verb = f"{len(names):,} files", "travel"
    if len(names) == 1:
        num, verb = "1 file", "travels"
    said = f"{num}, {nbytes / 1e6:.1f} MB, of {folder} {verb} to the workers"
    if is_shared:
        said += ": only .py files beside the script, as the folder is shared with much else"
    return Shipment(folder, tuple(names), said, tuple(too_large))


def _is_shared(folder: Path, home: Path) -> bool:
    """Whether a folder is a home folder, holds one, or is for everybody, as /tmp is."""
    everybodys = {
        Path(place).resolve() for place in ("/", "/tmp", "/var/tmp", tempfile.gettempdir())
    }
    return folder in everybodys or folder == home or folder in home.parents


def _code(root: Path, is_flat: bool) -> Iterator[tuple[str, int]]:
    """Iterate names and bytes of files that may be sent. is_flat: only .py beside the script."""
    for where, folders, files in os.walk(root):
        path = Path(where)
        may = [name for name in sorted(folders) if not is_flat and _may_travel(name)]
        folders[:] = [name for name in may if not (path / name).is_symlink()]
        for name in sorted(files):
            file = path / name
            if not _may_travel(name) or (is_flat and file.suffix != ".py"):
                continue
            real = Path(os.path.realpath(file))  # a link's target must be what may travel, too
            is_inside = real.is_relative_to(root.resolve())
            if is_inside and all(map(_may_travel, real.relative_to(root.resolve()).parts)):
                size = _size_of(real)
                if size is not None:
                    yield str(file.relative_to(root)), size


def _size_of(file: Path) -> int | None:
    """Return a file's bytes; None if it is not a regular file, is gone, or links to itself."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _may_travel(name: str) -> bool:
    if name.startswith(".") or name in _NOT_CODE:
        return False
    is_secret = any(fnmatch(name.lower(), pattern) for pattern in _SECRET_FILES)
    return not is_secret or name.endswith(".py")


def stays(name: str, value: str) -> bool:
    """Whether a variable is not sent: it belongs to a machine, or looks like a secret.

    A worker keeps its own credentials.
    """
    return _is_of_the_machine(name) or is_secret(name, value)


def is_secret(name: str, value: str) -> bool:
    """Whether a variable looks like a secret, by its name or as a URL with a password."""
    words = set(re.split(r"[^A-Z]+", name.upper()))
    return bool(words & _SECRET_WORDS) or bool(_URL_WITH_PASSWORD.search(value))


def sent_names(environ: Mapping[str, str] = os.environ) -> set[str]:
    """Return the variables that --send-env names: they are sent whatever they look like."""
    return set((environ.get(SEND_ENV) or "").split(","))


def secrets_that_stay(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the names of the variables that would be sent if they did not look like secrets."""
    sent = sent_names(environ)
    return sorted(
        name
        for name, value in environ.items()
        if name not in sent and not _is_of_the_machine(name) and is_secret(name, value)
    )


def _is_of_the_machine(name: str) -> bool:
    return name in _OF_THE_MACHINE or name.startswith(_OF_THE_MACHINE_PREFIXES)

"""Mounts and unmounts: what the kernel is told, and nothing of what is served there.

As root the run gets a mount namespace of its own, so that nobody else sees its mounts and the kernel
removes them with its last process; else `fusermount3` mounts at the path itself.
Source: mount(2), fuse(4), libfuse's doc/mount.fuse3.8; the protocol of fusermount3: lib/mount.c, 3.14.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import socket
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from stoker import descriptors
from stoker.errors import ConfigError

DEVICE = "/dev/fuse"
MOUNTINFO = Path("/proc/self/mountinfo")
_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV = 1, 2, 4
_MS_REC, _MS_SLAVE = 0x4000, 0x80000
_MNT_DETACH = 2
_NAME = "stoker"  # of the file system: fuse.stoker

_libc = ctypes.CDLL(None, use_errno=True)


class Attached(NamedTuple):
    """A mount. fd: of /dev/fuse, by which it is served; folder_fd: of the folder beneath, held with a
    shared lock, so that no other run removes it."""

    path: str
    fd: int
    folder_fd: int


def enter_namespace() -> bool:
    """Give this process a mount namespace of its own. Returns False where that is not allowed."""
    if _libc.unshare(_CLONE_NEWNS) != 0:
        return False
    # What others mount later is still seen here; what we mount is not seen there.
    return bool(_libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None) == 0)


def attach(path: str) -> Attached:
    """Mount at a path. Raises ConfigError, which says what to do."""
    if not Path(DEVICE).exists():
        raise ConfigError(
            f"mount: there is no {DEVICE} here, which --mount needs; in a container: "
            "docker run --device /dev/fuse --cap-add SYS_ADMIN --security-opt apparmor=unconfined"
        )
    folder_fd = _hold_empty(path)
    try:
        return Attached(path, _mount(path), folder_fd)
    except BaseException:
        _remove_if_ours(path, folder_fd)
        raise


def cover(path: str) -> bool:
    """Lay an overlay over a mount that answers, which shows the same files. Returns whether there is one
    now; without it all is as right, and slower.

    `open` of Python 3.11 to 3.13 asks each file whether it is a terminal: ioctl(2), which FUSE asks its
    process and overlayfs answers itself. Of a file that the kernel has, that is most of what opening it costs:
    57 us with, 14 without (decision 039).
    """
    if os.geteuid() != 0:
        return False
    # An overlay that is read-only wants two folders. Of a file system of its own: one that is removed
    # could not be listed.
    try:
        empty = tempfile.mkdtemp(prefix="stoker-")
    except OSError:
        return False
    fds: list[int] = []
    try:
        if _libc.mount(_NAME.encode(), os.fsencode(empty), b"tmpfs", _MS_RDONLY, b"size=4k") != 0:
            return False
        for folder in (path, empty):
            fds.append(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        # By number: a comma or a colon in a path would have to be masked.
        lower = ":".join(f"/proc/self/fd/{fd}" for fd in fds)
        options = f"lowerdir={lower},redirect_dir=nofollow,metacopy=off,index=off,xino=off"
        flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV
        where = _NAME.encode(), os.fsencode(path), b"overlay"
        return bool(_libc.mount(*where, flags, options.encode()) == 0)
    except OSError:
        return False
    finally:
        for fd in fds:
            os.close(fd)
        _libc.umount2(os.fsencode(empty), _MNT_DETACH)
        with contextlib.suppress(OSError):
            Path(empty).rmdir()


def num_ours(path: str, mountinfo: Path = MOUNTINFO) -> int:
    """Return how many of stoker's mounts are at a path, in this process's namespace. Source: proc(5)."""
    num = 0
    for line in mountinfo.read_text(errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        at = before.split(" ")[4]
        for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
            at = at.replace(code, char)
        num += at == path and after.startswith((f"fuse.{_NAME} ", f"overlay {_NAME} "))
    return num


def detach(path: str, folder_fd: int) -> None:
    """Unmount, even where somebody still has a file open there, and remove the folder if a run made it.
    Never fails: what is not mounted any more is fine."""
    for _ in range(max(num_ours(path) - 1, 0)):  # what covers it
        _libc.umount2(os.fsencode(path), _MNT_DETACH)
    if _libc.umount2(os.fsencode(path), _MNT_DETACH) != 0 and ctypes.get_errno() == errno.EPERM:
        fusermount = shutil.which("fusermount3")
        if fusermount is not None:
            with contextlib.suppress(OSError):
                subprocess.run(
                    [fusermount, "-u", "-z", "-q", "--", path], check=False, capture_output=True
                )
    _remove_if_ours(path, folder_fd)


# A folder that a run made has these bits, by which every run knows it: each may be the last one there.
_OURS = stat.S_ISVTX | 0o755


def _hold_empty(path: str) -> int:
    """Make a folder to mount at, if there is none, and lock it against being removed. Returns its
    descriptor. Raises ConfigError unless it is empty."""
    folder = Path(path)
    try:
        while True:
            _make(folder)
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(fd, fcntl.LOCK_SH)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), folder.stat()):
                    break
            os.close(fd)  # another run has removed it just now
        names = [each.name for each in folder.iterdir()]
    except OSError as error:
        cure = f"; is a mount left there? fusermount3 -uz {path}" * (error.errno == errno.ENOTCONN)
        raise ConfigError(f"mount: {path} cannot be used: {error.strerror}{cure}") from None
    if names:
        os.close(fd)
        raise ConfigError(
            f"mount: {path} is not empty ({names[0]}{', ...' if len(names) > 1 else ''}); give an "
            "empty folder, or one that does not exist"
        )
    return fd


def _make(folder: Path) -> None:
    """Make a folder and those above it. Raises OSError."""
    missing = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):
            each.mkdir()
            each.chmod(_OURS)


def _remove_if_ours(path: str, folder_fd: int) -> None:
    """Remove a folder, and those above it, that runs have made, unless another run uses them."""
    try:
        fcntl.flock(folder_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for each in (Path(path), *Path(path).parents):
            if each.stat().st_mode & 0o7777 != _OURS:
                break
            each.rmdir()
    except OSError:  # another run uses it, or somebody has put something there
        pass
    finally:
        os.close(folder_fd)


def _mount(path: str) -> int:
    if os.geteuid() != 0:
        return _mount_by_fusermount(path)
    fd = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    options = (
        f"fd={fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},"
        "default_permissions,allow_other"
    )
    flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV
    kind = f"fuse.{_NAME}".encode()
    if _libc.mount(_NAME.encode(), os.fsencode(path), kind, flags, options.encode()) != 0:
        code = ctypes.get_errno()
        os.close(fd)
        raise ConfigError(
            f"mount: {path} cannot be mounted: {os.strerror(code)}; in a container: "
            "docker run --device /dev/fuse --cap-add SYS_ADMIN --security-opt apparmor=unconfined"
        )
    return fd


def _mount_by_fusermount(path: str) -> int:
    fusermount = shutil.which("fusermount3")
    if fusermount is None:
        raise ConfigError(
            "mount: only root may mount without fusermount3, which is not installed; "
            "Debian and Ubuntu: apt-get install fuse3"
        )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        options = f"ro,nosuid,nodev,default_permissions,fsname={_NAME},subtype={_NAME}"
        done = subprocess.run(
            [fusermount, "-o", options, "--", path],
            env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
            pass_fds=[theirs.fileno()],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            _, fds = descriptors.receive(ours, 1, 1)
            if fds:
                return fds[0]
    why = done.stderr.strip().removeprefix("fusermount3: ") or f"exit code {done.returncode}"
    raise ConfigError(f"mount: {path} cannot be mounted: {why}")

"""Tells when a process that the script has forked can no longer see this one's memory.

Owner: the thread that forks, and the one that iterates.
"""

import os
import select

from stoker import descriptors


class ForkedChild:
    """Tells whether a forked child, and all that it forked, still has this process's memory.

    A pipe whose writing end only the child keeps: it closes when the child ends or runs another
    program. Made before the fork; then call `in_parent` or `in_child`.
    """

    _is_gone = True  # where there is no pipe to be had

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe()
        self._is = descriptors.of(self._read_fd)  # of both ends
        self._is_gone = False

    def in_parent(self) -> None:
        descriptors.close(self._write_fd, self._is)

    def in_child(self) -> None:
        """Disable this copy; the writing end stays open while the child lives."""
        if not self._is_gone:
            descriptors.close(self._read_fd, self._is)
            self._is_gone = True

    def is_gone(self) -> bool:
        if not self._is_gone and not descriptors.is_still(self._read_fd, self._is):
            return False  # the script closed it: nobody can tell any more
        if not self._is_gone:
            poll = select.poll()
            poll.register(self._read_fd, 0)  # POLLHUP comes unasked
            if poll.poll(0):
                descriptors.close(self._read_fd, self._is)
                self._is_gone = True
        return self._is_gone

    def __del__(self) -> None:
        if not self._is_gone:
            descriptors.close(self._read_fd, self._is)

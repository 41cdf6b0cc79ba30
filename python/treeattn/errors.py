"""Exceptions: each has the library's status, the status's name and its sentence."""
from __future__ import annotations

from ._bindings import Status


class TreeattnError(Exception):
    """An error of the library. `status` is its number (a Status), `name` as C spells it, and the
    text is the library's sentence about it."""

    status = Status.ERR_SYSTEM

    def __init__(self, sentence: str, status: int | None = None):
        super().__init__(sentence)
        if status is not None:
            self.status = status

    @property
    def name(self) -> str:
        """The status as C spells it, e.g. "TA_ERR_TIMEOUT"."""
        try:
            return 'TA_' + Status(self.status).name
        except ValueError:
            return 'TA_ERR_UNKNOWN'


class InvalidError(TreeattnError, ValueError):
    """An argument is out of its range, or contradicts another."""

    status = Status.ERR_INVALID


class UnsupportedError(TreeattnError, NotImplementedError):
    """Valid, but this device, group or build cannot do it."""

    status = Status.ERR_UNSUPPORTED


class NoMemoryError(TreeattnError, MemoryError):
    """Memory could not be allocated."""

    status = Status.ERR_NO_MEMORY


class TimedOutError(TreeattnError, TimeoutError):
    """A rank did not arrive within the group's timeout."""

    status = Status.ERR_TIMEOUT


class MismatchError(TreeattnError):
    """The ranks of a group disagree about what to do."""

    status = Status.ERR_MISMATCH


class AbortedError(TreeattnError):
    """The group was aborted by one of its ranks."""

    status = Status.ERR_ABORTED


class NotFoundError(TreeattnError, LookupError):
    """No such device, module or symbol."""

    status = Status.ERR_NOT_FOUND


CLASSES = {int(cls.status): cls for cls in
           (InvalidError, UnsupportedError, NoMemoryError, TimedOutError, MismatchError,
            AbortedError, NotFoundError)}


def error_of(status: int, sentence: str) -> TreeattnError:
    """The exception for a status."""
    return CLASSES.get(status, TreeattnError)(sentence, status)

"""A text in an inventory or job file that is not what its key wants."""

from __future__ import annotations

from clusterctl.specs import codes


class BadValueError(ValueError):
    """A text that is not what its key wants; the message follows the key's name and a colon."""

    def __init__(self, message: str, fix: str = "", code: str = codes.WRONG_VALUE) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.code = code

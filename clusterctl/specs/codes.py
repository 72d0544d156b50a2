"""A value that is not what its key wants."""

from __future__ import annotations

from clusterctl.codes.lookup import word


class InvalidValueError(ValueError):
    """A text that is not what its key wants; the message of the case follows the key's name and a colon."""

    def __init__(self, code: str, case: str = "", /, **facts: object) -> None:
        self.message, self.fix = word(code, case, facts)
        super().__init__(self.message)
        self.code = code

"""A value that is not what its key wants, and names of the codes that specs/yaml gives."""

from __future__ import annotations

from clusterctl.codes.lookup import word

SYNTAX = "CC-SPEC-001"
NOT_TEXT = "CC-SPEC-002"
TOO_LARGE = "CC-SPEC-003"
DUPLICATE_KEY = "CC-SPEC-004"
DOCUMENT = "CC-SPEC-005"
UNSUPPORTED = "CC-SPEC-006"

UNKNOWN_KEY = "CC-SPEC-010"
MISSING_KEY = "CC-SPEC-011"
WRONG_TYPE = "CC-SPEC-012"
WRONG_VALUE = "CC-SPEC-013"
NO_VALUE = "CC-SPEC-014"


class InvalidValueError(ValueError):
    """A text that is not what its key wants; the message of the case follows the key's name and a colon."""

    def __init__(self, code: str, case: str = "", /, **facts: object) -> None:
        self.message, self.fix = word(code, case, facts)
        super().__init__(self.message)
        self.code = code

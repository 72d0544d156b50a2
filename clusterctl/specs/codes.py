"""Codes of what can be wrong in a file, and the error that carries one."""

from __future__ import annotations

SYNTAX = "CC-SPEC-001"  # the text is not YAML
NOT_TEXT = "CC-SPEC-002"  # invalid UTF-8, control characters, NUL, lone surrogates
TOO_LARGE = "CC-SPEC-003"  # size, depth, number of values, expansion of aliases, number of problems
DUPLICATE_KEY = "CC-SPEC-004"
DOCUMENT = "CC-SPEC-005"  # empty, several documents, or not keys and values
UNSUPPORTED = "CC-SPEC-006"  # YAML that these files do not use: merge keys, tags, lists as keys
OTHER_KIND = "CC-SPEC-008"  # a Python script, or the inventory and the job swapped

UNKNOWN_KEY = "CC-SPEC-010"
MISSING_KEY = "CC-SPEC-011"
WRONG_TYPE = "CC-SPEC-012"  # a list where a text is expected, a word where a number is expected
WRONG_VALUE = "CC-SPEC-013"
NO_VALUE = "CC-SPEC-014"  # null where something must stand
OUT_OF_RANGE = "CC-SPEC-015"

NODE_NAME = "CC-SPEC-020"  # two nodes of one name, or a name that means something else
SAME_ADDRESS = "CC-SPEC-021"  # two nodes with the same host and port
NO_NODES = "CC-SPEC-022"
IPV6 = "CC-SPEC-023"  # training over IPv6
UNSAFE = "CC-SPEC-024"  # characters that a host, user or path must not hold
NIC_NAME = "CC-SPEC-025"

SCRIPT_OR_MODULE = "CC-SPEC-030"
RESERVED_ENV = "CC-SPEC-031"  # a variable that torchrun or clusterctl sets
SECRET_IN_ENV = "CC-SPEC-032"
PLACEHOLDER = "CC-SPEC-033"
LAUNCHER = "CC-SPEC-034"  # a key that belongs to another launcher, or one that this launcher needs
GPUS_TWICE = "CC-SPEC-035"  # gpus, and a variable in env that chooses GPUs too
SETUP = "CC-SPEC-036"  # keys of setup that do not go together

OVERRIDE = "CC-SPEC-040"  # --set names a place that cannot be set

IMPORT_LINE = "CC-SPEC-050"  # a line that the other tool's form does not have
IMPORT_FORMAT = "CC-SPEC-051"  # the form of another tool's inventory cannot be told, or is not one
IMPORT_GROUP = "CC-SPEC-052"  # no such group

EMPTY_SELECTION = "CC-USE-010"
BAD_PATTERN = "CC-USE-011"
UNKNOWN_NODE = "CC-USE-012"


class InvalidValueError(ValueError):
    """A text that is not what its key wants; the message follows the key's name and a colon."""

    def __init__(self, message: str, fix: str = "", code: str = WRONG_VALUE) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.code = code

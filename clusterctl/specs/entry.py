"""What the models of both files share: their strictness, and the kinds of scalar they use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict

from clusterctl.protocol.run_id import NAME_PATTERN
from clusterctl.specs import codes
from clusterctl.specs.bad_value import BadValueError
from clusterctl.specs.leaf import Leaf
from clusterctl.specs.nearest import did_you_mean
from clusterctl.specs.tree import quoted
from clusterctl.specs.values import LONGEST_NAME, parse_name, parse_python, parse_text

Schema = dict[str, Any]

ANY_TEXT: Schema = {"type": ["string", "number", "boolean"]}  # 1e-4 and true keep their text


class Entry(BaseModel):
    """A mapping in a file: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)  # built when a file is read


def text(pattern: str = "", **more: Any) -> Schema:
    """Describe a text; a name such as 2024 may be written without quotes."""
    return {"type": ["string", "integer"], **({"pattern": f"^{pattern}$"} if pattern else {}), **more}


def whole_number(**limits: int) -> Schema:
    """Describe a whole number, which may be quoted."""
    return {"type": ["integer", "string"], "pattern": "^[0-9]+$", **limits}


def one_of(*choices: str) -> Leaf:
    """Make the kind of a value that is one of a few words."""
    expected = " or ".join((", ".join(choices[:-1]), choices[-1])) if len(choices) > 1 else choices[0]

    def parse(word: str) -> str:
        if word in choices:
            return word
        raise BadValueError(f"expected {expected}, got {quoted(word)}{did_you_mean(word, choices)}")

    return Leaf(expected, parse, {"enum": list(choices)})


def optional(noun: str, parse: Callable[[str], object], schema: Schema) -> Leaf:
    """Make the kind of a value that null takes away again."""
    return Leaf(noun, parse, schema, null=True)


def _parse_flag(word: str) -> bool:
    if word not in ("true", "false"):
        raise BadValueError(f"expected true or false, got {quoted(word)}", code=codes.WRONG_TYPE)
    return word == "true"


FLAG = Leaf("true or false", _parse_flag, {"type": "boolean"})
NAME = Leaf("a name", parse_name, text(NAME_PATTERN, maxLength=LONGEST_NAME))
PYTHON = Leaf("an interpreter", parse_python, {"type": "string"})
TEXT = Leaf("a text", parse_text, {"type": "string", "minLength": 1})
OPTIONAL_TEXT = optional("a text", parse_text, {"type": "string", "minLength": 1})

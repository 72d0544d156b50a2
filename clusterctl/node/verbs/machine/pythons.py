"""The verb `pythons`: which interpreters a node has, and the torch of each; it writes nothing.

request {"code": folder}
node    {"pythons": [{"path": ..., "version": "3.11", "torch": "2.13.0+cpu" or null}], "modules": [name]}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ....protocol.messages.record import to_json
from ...probe.pythons import find_pythons, list_modules
from ...probe.questions import answer_all

if TYPE_CHECKING:
    from ....protocol.messages.verbs import PythonsAnswer, PythonsRequest
    from ...runtime.stream import Stream

LIMIT = 6.0  # seconds; a home on a dead server must not hold up the answer


def run(request: PythonsRequest, stream: Stream) -> None:
    """Answer with what is found in time."""
    code = str(request.get("code") or "")
    questions = {"pythons": lambda: find_pythons(code), "modules": list_modules}
    stream.answer(cast("PythonsAnswer", to_json(answer_all(questions, {}, LIMIT))))

"""Damaged texts, and what any error about them must hold."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from clusterctl.errors import SpecError

PIECES = [*"\t\n\r :-?[]{},#&*!|>'\"%@`\\0~\x85\u2028\ufeff\x00\x1f\ud800\u202e\N{COLLISION SYMBOL}"]


PIECES += [
    "\n  ",
    "\n- ",
    ": ",
    "<<: ",
    "*a",
    "&a ",
    "!!str ",
    "---\n",
    "...\n",
    "%YAML 1.1\n",
    "? ",
    "key: ",
]


PIECES += ["null", "${", "$${", '"\\x00"', '"\\U00110000"', '"\\ud800"']


few = settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


fewer = settings(few, max_examples=40)


noise = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=25).map("".join))


@st.composite
def damaged(draw: st.DrawFn, originals: list[str]) -> str:
    """Make a few cuts, copies and insertions in a text that is right."""
    text = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        piece = draw(st.sampled_from([*PIECES, "", text[start:end] * 2]))
        text = text[:start] + piece + text[end:]
    return text


def judge(error: SpecError, text: str) -> None:
    """Hold an error to what every error promises."""
    lines = (
        text.replace("\r\n", "\n")
        .replace("\r", "\n")
        .replace("\x85", "\n")
        .replace("\u2028", "\n")
        .split("\n")
    )
    assert error.issues
    for issue in error.issues:
        assert issue.location is not None
        assert issue.code.startswith(("CC-SPEC-0", "CC-SLURM-0"))
        assert issue.message.isprintable(), issue.message
        assert issue.fix.isprintable(), issue.fix
        if issue.location.file == "f":
            assert 1 <= issue.location.line <= len(lines) + 1
            assert 1 <= issue.location.column <= len(text) + 1

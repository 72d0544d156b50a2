"""Whatever stands in another tool's file, the answer is an inventory that parses, or a SpecError, without much work."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from counting import check_growth
from damage import damaged, few, judge, noise
from hypothesis import given
from hypothesis import strategies as st
from listings import INI, YAML, listing
from variants import VARIANT

from clusterctl.errors import SpecError
from clusterctl.specs.importers.detect import parse_imported
from clusterctl.specs.importers.formats import FORMAT_DESCRIPTIONS
from clusterctl.specs.importers.imported import MAX_CHARACTERS
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.render import render_inventory

HOSTFILES = ["a slots=8\nb slots=8 max_slots=9\n", "u@a:4\nb:4\n", "10.0.0.1\n10.0.0.2:2222\n"]
WORDS = [
    "[",
    "]",
    ":",
    "=",
    '{"_meta": {"hostvars": {',
    '"ansible_host": ',
    '"children": ',
    '"all": {',
    "}}",
]
WORDS += [
    "'",
    '"',
    "\\",
    " #",
    ";",
    "\t",
    "\n",
    "\r\n",
    "\x0b",
    "\u2028",
    "\ufeff",
    "\x00",
    "[01:3]",
    "[1:99999]",
    "{{x}}",
]
WORDS += ["host", "slots=", "4", "@", "\ud800", "名"]
words = st.lists(st.sampled_from(WORDS), max_size=30).map("".join)


def judge_import(text: str, file: str, form: str, group: str | None) -> None:
    """Import it; what is written parses, and an error is one that can be shown."""
    try:
        written = render_inventory(parse_imported(text, file, form, group), group or "")
    except SpecError as error:
        judge(error, text)
        return
    assert parse_inventory(written, "f").nodes


@few
@given(
    st.one_of(damaged([INI, YAML, *HOSTFILES]), noise, words),
    st.sampled_from(["f", "f.yml", "f.ini"]),
    st.sampled_from(["auto", *FORMAT_DESCRIPTIONS]),
    st.sampled_from([None, None, "gpu", "all", "x"]),
)
def test_any_text(text: str, file: str, form: str, group: str | None) -> None:
    """Noise, words of these forms in any order, and files with a few letters wrong."""
    judge_import(text, "f" if file == "f" else file, form, group)


MANY = MAX_CHARACTERS - 200


def _chain(length: int) -> dict[str, object]:
    """Return groups each of which holds the next, and the last all hosts."""
    return {f"g{m}": {"children": [f"g{m + 1}" if m + 1 < length else "gpu"]} for m in range(length)}


# How often something is repeated in the largest file, and the file with that or another number of repetitions.
HUGE: dict[str, tuple[int, Callable[[int], str]]] = {
    "a long line": (MANY, lambda n: "a" * n),
    "many words": (MANY // 2, lambda n: "a " * n),
    "many settings": (MANY // 4, lambda n: "h " + "a=b " * n),
    "many equal signs": (MANY, lambda n: "h " + "=" * n),
    "spaces before a sign": (MANY, lambda n: "h a" + " " * n + "b"),
    "many hosts": (20_000, lambda n: "".join(f"h{number} slots=1\n" for number in range(n))),
    "one host over and over": (30_000, lambda n: "h slots=1\n" * n),
    "many remarks": (4_000, lambda n: "".join(f"h{number} k{number}=1\n" for number in range(n))),
    "many wrong lines": (20_000, lambda n: "-x slots=1\n" * n),
    "a long value": (MANY, lambda n: listing({"h": {"a": "b" * n}})),
    "a huge range in a list": (1_000, lambda n: "h[1-999999999]\n" * n),
    "many ranges in a list": (1_000, lambda n: "h[1-9][1-9][1-9][1-9][1-9][1-9][1-9]\n" * n),
    "a long range": (4_000, lambda n: f"h[1-{n}]\n"),
    "one range over and over": (1_000, lambda n: "h[1-400]\n" * n),
    "a chain of groups": (
        900,
        lambda n: listing({f"h{m}": {} for m in range(400)}, **_chain(n)),
    ),
    "too many groups": (20_000, lambda n: listing({"h": {}}, **{f"g{m}": {} for m in range(n)})),
    "many hosts with options": (
        4_000,
        lambda n: listing({f"h{m}": {"ansible_ssh_common_args": "-o A=b " * 1000} for m in range(n)}),
    ),
    "a deep value": (MANY // 2, lambda n: '{"_meta": ' + "[" * n + "]" * n + "}"),
    "a long number": (MANY, lambda n: '{"_meta": ' + "1" * n + "}"),
}


# Seconds each; that their work grows with the file is tested with smaller ones.
SECONDS = ("one range over and over", "many remarks", "one host over and over")


@pytest.mark.process
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=VARIANT if name in SECONDS else ()) for name in HUGE]
)
def test_huge_files_end(name: str) -> None:
    """A file within the size limit is read or refused; what is written stays small enough to be read."""
    size, text = HUGE[name]

    judge_import(text(size), "f", "auto", None)


@pytest.mark.process
@pytest.mark.parametrize("name", HUGE)
def test_work_grows_with_the_file(name: str) -> None:
    """Ten times the file is about ten times the work, not a hundred times."""
    size, text = HUGE[name]

    check_growth(lambda number: judge_import(text(number), "f", "auto", None), size // 20)

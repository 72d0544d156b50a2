"""Whatever stands in another tool's file, the answer is an inventory that parses, or a SpecError, without much work."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from counting import check_growth
from damage import damaged, few, judge, noise
from hypothesis import given
from hypothesis import strategies as st
from test_detect import INI, YAML
from variants import VARIANT

from clusterctl.errors import SpecError
from clusterctl.specs.importers.detect import FORMATS, parse_imported
from clusterctl.specs.importers.imported import MOST_CHARACTERS
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.inventory.render import render_inventory

HOSTFILES = ["a slots=8\nb slots=8 max_slots=9\n", "u@a:4\nb:4\n", "10.0.0.1\n10.0.0.2:2222\n"]
WORDS = [
    "[",
    "]",
    ":",
    "=",
    "[all:vars]\n",
    "[x:children]\n",
    "ansible_host=",
    "ansible_ssh_common_args=",
    "-J ",
    "-o ",
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
    st.sampled_from(["auto", *FORMATS]),
    st.sampled_from([None, None, "gpu", "all", "x"]),
)
def test_any_text(text: str, file: str, form: str, group: str | None) -> None:
    """Noise, words of these forms in any order, and files with a few letters wrong."""
    judge_import(text, "f" if file == "f" else file, form, group)


MANY = MOST_CHARACTERS - 200
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
    "a long quotation": (MANY, lambda n: "[g]\nh a='" + "b" * n),
    "a huge range": (999_999_999, lambda n: f"[g]\nh[1:{n}]\n"),
    "a huge range in a list": (1_000, lambda n: "h[1-999999999]\n" * n),
    "many ranges in a list": (1_000, lambda n: "h[1-9][1-9][1-9][1-9][1-9][1-9][1-9]\n" * n),
    "a long range": (4_000, lambda n: f"h[1-{n}]\n"),
    "one range over and over": (1_000, lambda n: "h[1-400]\n" * n),
    "ranges of ranges": (100_000, lambda n: "[g]\nh" + "[1:9]" * n),
    "open brackets": (MANY, lambda n: "[g]\nh" + "[" * n),
    "many colons": (MANY, lambda n: "[g]\nh" + ":" * n),
    "a chain of groups": (
        900,
        lambda n: "".join(f"[g{m}:children]\ng{m + 1}\n" for m in range(n)) + f"[g{n}]\nh[1:400]\n",
    ),
    "too many groups": (20_000, lambda n: "".join(f"[g{m}]\n" for m in range(n))),
    "all in all": (
        400,
        lambda n: "".join(f"[g{m}]\nh[1:100]\n[g{m}:vars]\nansible_user=u{m}\n" for m in range(n)),
    ),
    "many hosts with options": (
        2_000,
        lambda n: "[g]\nh[1:400] ansible_ssh_common_args='" + "-o A=b " * n + "'\n",
    ),
    "a bomb": (
        400,
        lambda n: (
            "a: &a {hosts: {x: null}}\n"
            + "".join(
                f"g{g}: {{children: {{{', '.join(f'c{g}x{m}: *a' for m in range(n))}}}}}\n" for g in range(30)
            )
        ),
    ),
    "a deep tree": (40_000, lambda n: "all: " + "{children: {g: " * n),
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

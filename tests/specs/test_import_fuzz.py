"""Whatever stands in another tool's file, the answer is an inventory that parses, or a SpecError, and soon."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_import_inventory import INI, YAML
from test_spec_fuzz import damaged, few, judge, noise

from clusterctl.errors import SpecError
from clusterctl.specs.foreign import MOST_FOREIGN
from clusterctl.specs.import_inventory import FORMS, parse_foreign
from clusterctl.specs.inventory_parsing import parse_inventory
from clusterctl.specs.inventory_text import render_inventory

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
        written = render_inventory(parse_foreign(text, file, form, group), group or "")
    except SpecError as error:
        judge(error, text)
        return
    assert parse_inventory(written, "f").nodes


@few
@given(
    st.one_of(damaged([INI, YAML, *HOSTFILES]), noise, words),
    st.sampled_from(["f", "f.yml", "f.ini"]),
    st.sampled_from(["auto", *FORMS]),
    st.sampled_from([None, None, "gpu", "all", "x"]),
)
def test_any_text(text: str, file: str, form: str, group: str | None) -> None:
    """Noise, words of these forms in any order, and files with a few letters wrong."""
    judge_import(text, "f" if file == "f" else file, form, group)


MANY = MOST_FOREIGN - 200
HUGE = {
    "a long line": "a" * MANY,
    "many words": "a " * (MANY // 2),
    "many settings": "h " + "a=b " * (MANY // 4),
    "many equal signs": "h " + "=" * MANY,
    "spaces before a sign": "h a" + " " * MANY + "b",
    "many hosts": "".join(f"h{number} slots=1\n" for number in range(20_000)),
    "one host over and over": "h slots=1\n" * 30_000,
    "many remarks": "".join(f"h{n} k{n}=1\n" for n in range(4_000)),
    "many wrong lines": "-x slots=1\n" * 20_000,
    "a long quotation": "[g]\nh a='" + "b" * MANY,
    "a huge range": "[g]\nh[1:999999999]\n",
    "a huge range in a list": "h[1-999999999]\n" * 1_000,
    "many ranges in a list": "h[1-9][1-9][1-9][1-9][1-9][1-9][1-9]\n" * 1_000,
    "one range over and over": "h[1-4000]\n" * 1_000,
    "ranges of ranges": "[g]\nh" + "[1:9]" * 100_000,
    "open brackets": "[g]\nh" + "[" * MANY,
    "many colons": "[g]\nh" + ":" * MANY,
    "a chain of groups": "".join(f"[g{n}:children]\ng{n + 1}\n" for n in range(900)) + "[g900]\nh[1:4000]\n",
    "too many groups": "".join(f"[g{n}]\n" for n in range(20_000)),
    "all in all": "".join(f"[g{n}]\nh[1:100]\n[g{n}:vars]\nansible_user=u{n}\n" for n in range(400)),
    "many hosts with options": "[g]\nh[1:4000] ansible_ssh_common_args='" + "-o A=b " * 2_000 + "'\n",
    "a bomb": "a: &a {hosts: {x: null}}\n"
    + "".join(
        f"g{n}: {{children: {{{', '.join(f'c{n}x{m}: *a' for m in range(400))}}}}}\n" for n in range(30)
    ),
    "a deep tree": "all: " + "{children: {g: " * 40_000,
}


@pytest.mark.parametrize("name", HUGE)
def test_huge_files_end_soon(name: str) -> None:
    """A file within the size limit is read or refused; what is written stays small enough to be read."""
    began = time.process_time()

    judge_import(HUGE[name], "f", "auto", None)

    assert time.process_time() - began < 4

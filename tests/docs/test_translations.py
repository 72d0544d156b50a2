"""A Chinese page states what its English page states: the same steps, commands, files, numbers and codes."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import english_parts
import pytest
from facts import HAN, Fact, blocks_of, differences, facts, sections
from pages import ROOT, links

DOCS = ROOT / "docs"
INDEX = DOCS / "zh" / "README.md"
TRANSLATED = sorted(path for path in (DOCS / "zh").rglob("*.md") if path != INDEX)
FRONT = ROOT / "README.zh-CN.md"


def english(page: Path) -> Path:
    """Give the page that a Chinese page translates."""
    return ROOT / "README.md" if page == FRONT else DOCS / "en" / page.relative_to(DOCS / "zh")


def name(page: Path) -> str:
    """Return the name of a case: `reference/job.md`."""
    return page.name if page == FRONT else str(page.relative_to(DOCS / "zh"))


def mismatches(english: str, chinese: str, page: Path, other: Path) -> list[str]:
    """Name what only one of two texts states, by section and by block."""
    theirs, ours = sections(english), sections(chinese)
    if [kind for kind, _ in theirs] != [kind for kind, _ in ours]:
        return [
            f"headings: {[kind for kind, _ in theirs]} in English, {[kind for kind, _ in ours]} in Chinese"
        ]
    found = [
        f"{text.partition(chr(10))[0]}: {fact}"
        for (_, text), (_, own) in zip(theirs, ours, strict=True)
        for fact in one_sided(facts(text, other), facts(own, page), english)
    ]
    blocks, own_blocks = blocks_of(english), blocks_of(chinese)
    if len(blocks) != len(own_blocks):
        return [*found, f"{len(blocks)} blocks in English, {len(own_blocks)} in Chinese"]
    pairs = zip(blocks, own_blocks, strict=True)
    return [*found, *(f"block: {fact}" for pair in pairs for fact in sorted(differences(*pair)))]


def one_sided(theirs: Counter[Fact], ours: Counter[Fact], english: str) -> list[Fact]:
    """List what only one of two sections states, or more often; a word of the English page more is no harm."""
    more = [fact for fact in ours - theirs if fact[0] != "words" or fact[1] not in english]
    return sorted([*(theirs - ours), *more])


@pytest.mark.parametrize("page", [FRONT, INDEX, *TRANSLATED], ids=name)
def test_it_states_what_the_english_page_states(page: Path) -> None:
    """If this fails, one page has changed and the other has not; sentences and comments are free."""
    other = english(page)
    theirs, ours = other.read_text(encoding="utf-8"), page.read_text(encoding="utf-8")

    assert mismatches(theirs, ours, page, other) == []


SAMPLE = """# Title

Run `clusterctl check`; after 20 s it ends with CC-NET-001. See [job](job.md#placeholders).

| key | value |
|---|---|
| `nic` | 4 |

```
clusterctl launch job.yaml --nodes 0   # one node
the agent -> torchrun, port 29500
then it waits
```

## Next

- `stop` ends it.
- `stop` may be called twice.
- Nothing else.
"""
TRANSLATION = """# 标题

20 秒后以 CC-NET-001 结束。先执行 `clusterctl check`。见[作业](job.md#占位符)。

| 键 | 值 |
|---|---|
| `nic` | 4 |

```
clusterctl launch job.yaml --nodes 0   # 一个节点
agent 启动 torchrun 端口 29500
然后等待
```

## 下一步

- `stop` 结束。
- `stop` 可以调用两次。
- 无。
"""


def test_sentences_and_diagrams_may_differ() -> None:
    """Order, wording, comments and the words of a diagram are the translator's."""
    assert mismatches(SAMPLE, TRANSLATION, DOCS / "zh" / "a.md", DOCS / "en" / "a.md") == []


@pytest.mark.parametrize(
    ("stated", "instead"),
    [
        ("`clusterctl check`", "检查"),
        ("20 秒", "2 秒"),
        ("CC-NET-001", "CC-NET-002"),
        ("job.md#占位符", "job.md"),
        ("| `nic` | 4 |\n", ""),
        ("## 下一步", "下一步"),
        (" --nodes 0 ", " "),
        ("端口 29500", "端口"),
        ("agent 启动 torchrun 端口 29500", "agent -> torchrun, port 29501"),
        ("然后等待\n", ""),
        ("`stop` 可以", "可以"),
        ("- 无。\n", ""),
    ],
)
def test_a_missing_fact_is_noticed(stated: str, instead: str) -> None:
    """Each kind: words, a number, a code, a link, a row, a section, an option, a part of a diagram, a point."""
    assert stated in TRANSLATION
    changed = TRANSLATION.replace(stated, instead)

    assert mismatches(SAMPLE, changed, DOCS / "zh" / "a.md", DOCS / "en" / "a.md")


def test_output_is_taken_from_the_english_page() -> None:
    """A block without Chinese words becomes the one in its place; with other blocks on the page nothing changes."""
    english, ours = "```\n$ a\nnew\n```\n\n```\nb  # of\n```\n", "```\n$ a\nold\n```\n\n```\nb  # 的\n```\n"

    assert english_parts.with_english_blocks(ours, english) == ours.replace("old", "new")
    assert english_parts.with_english_blocks(ours, "```\nnew\n```\n") == ours


@pytest.mark.parametrize("file", ["inventory", "job"])
def test_every_key_has_its_chinese(file: str) -> None:
    """The kind of value and the meaning of each key are Chinese on the Chinese page, names and numbers aside."""
    page = (DOCS / "zh" / "reference" / f"{file}.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `\w+` \| (.*) \| (.*) \| (.*) \|$", page, re.MULTILINE)

    assert len(rows) > 20
    assert [meaning for _, _, meaning in rows if not HAN.search(meaning)] == []
    assert [kind for kind, _, _ in rows if re.search(r"\b(a|an|the|or|of) ", kind)] == []


def test_every_chinese_page_can_be_reached() -> None:
    """The README leads to the index, the index to each page, and either language to the other."""
    named = set(links(INDEX))

    assert {name(page) for page in TRANSLATED} <= named
    assert "docs/zh/README.md" in links(FRONT)
    for page, other in ((ROOT / "README.md", FRONT.name), (FRONT, "README.md"), (INDEX, "../en/README.md")):
        assert f"]({other})" in "\n".join(page.read_text(encoding="utf-8").splitlines()[:5]), page.name
    assert "../zh/README.md" in links(DOCS / "en" / "README.md")


@pytest.mark.parametrize("page", [FRONT, INDEX, *TRANSLATED], ids=name)
def test_it_links_to_chinese_pages(page: Path) -> None:
    """A Chinese page links to English pages of the manual only to switch the language."""
    text = page.read_text(encoding="utf-8")

    assert re.findall(r"(?<!\[English\])\((?:[./]*|docs)/en/[\w/-]+\.md", text) == []


def test_a_link_leads_to_the_same_heading() -> None:
    """An anchor of an English page becomes that of the Chinese heading in its place; the switch of language stays."""
    english = "[English](../en/job.md), [rules](../en/reference/inventory.md#rules)\uff08英文\uff09"
    pages = {page: page.read_text(encoding="utf-8") for page in TRANSLATED}

    assert english_parts.to_chinese_pages(english, DOCS / "zh" / "a.md", pages) == (
        "[English](../en/job.md), [rules](reference/inventory.md#规则)"
    )


def test_both_manuals_have_the_same_pages() -> None:
    """Each page of the manual and its reference is there in both languages."""
    folders = (DOCS / "en", DOCS / "zh")
    pages, chinese_pages = ({page.relative_to(one) for page in one.rglob("*.md")} for one in folders)

    assert chinese_pages == pages

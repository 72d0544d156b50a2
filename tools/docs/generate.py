"""Rewrite the parts of the documentation that the code knows better: keys, options, codes, in both languages.

`python tools/docs/generate.py` rewrites them until nothing changes; with `--check` it only names the pages that are
stale. It writes nothing while a text has no Chinese: that would be an English sentence on a Chinese page.
A generated part stands between `<!-- generated: KIND NAME -->` and `<!-- end of generated -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))  # the tree's own package, not an installed one

import catalogue
import codes
import english_parts
import faults
import imports
import keys
import llms
import manpage
import messages
import node_messages
import plots
import verbs
from examples import FILE, written

from clusterctl.translation import Language, use_language

ROOT = Path(__file__).parents[2]
PAGES, CHINESE, INSIDE = (ROOT / "docs" / name for name in ("en", "zh", "inside"))
PART = re.compile(r"(<!-- generated: (\S+)(?: ([^\n]*?))? -->\n).*?(<!-- end of generated -->\n)", re.DOTALL)
MAX_ROUNDS = 4  # a page takes from a page that takes from another
KINDS: Mapping[str, Callable[[str], str]] = {
    "keys": keys.keys,
    "placeholders": keys.placeholders,
    "variables": keys.variables,
    "verb-list": verbs.verb_list,
    "verbs": verbs.verbs,
    "shared": verbs.shared,
    "codes": codes.codes,
    "faults": faults.fault_table,
    "catalogue": catalogue.failing,
    "layers": imports.layers,
    "tree": imports.tree,
    "inside": imports.inside,
    "messages": node_messages.messages,
}


def render(page: str, chosen: Language) -> str:
    """Fill every generated part of a page in its language."""
    use_language(chosen)

    def part(found: re.Match[str]) -> str:
        return f"{found[1]}\n{KINDS[found[2]](found[3] or '').rstrip()}\n\n{found[4]}"

    return PART.sub(part, page)


def generated() -> Iterator[tuple[Path, str]]:
    """Give every file of which a part is generated, as it should be."""
    yield from rendered([*PAGES.rglob("*.md"), *INSIDE.glob("*.md"), ROOT / "SKILL.md"], "en").items()
    yield llms.FILE, llms.index()
    yield FILE, written(catalogue.happens())
    yield from plots.drawn()
    yield from manpage.written()
    yield from chinese_pages()
    use_language("en")


def chinese_pages() -> Iterator[tuple[Path, str]]:
    """Give the Chinese pages, with what they take from others."""
    fronts = [ROOT / "README.zh-CN.md", *(ROOT / "playbooks").rglob("README.zh-CN.md")]
    english = {path: path.with_name("README.md") for path in fronts}
    english |= {path: PAGES / path.relative_to(CHINESE) for path in CHINESE.rglob("*.md")}
    pages = rendered(english, "zh")
    manual = {path: text for path, text in pages.items() if path.is_relative_to(CHINESE)}
    for path, text in pages.items():
        whole = english_parts.with_english_blocks(text, english[path].read_text(encoding="utf-8"))
        yield path, english_parts.to_chinese_pages(whole, path, manual)


def rendered(paths: Iterable[Path], chosen: Language) -> dict[Path, str]:
    """Render some pages in one language."""
    return {path: render(path.read_text(encoding="utf-8"), chosen) for path in sorted(paths)}


def stale_files() -> Iterator[tuple[Path, str]]:
    """Yield every file that is not as it should be, with its right content."""
    for path, fresh in generated():
        if not path.exists() or path.read_text(encoding="utf-8") != fresh:
            yield path, fresh


def rewrite() -> list[Path]:
    """Write the stale files until there are none, since pages take parts of others; returns those that never settle."""
    for _ in range(MAX_ROUNDS):
        stale = [*stale_files()]
        for path, fresh in stale:
            path.write_text(fresh, encoding="utf-8")
        if not stale:
            break
    return [path for path, _ in stale]


def main(arguments: list[str]) -> int:
    """Rewrite the pages, or with `--check` name the stale ones; returns the exit code."""
    missing = [*messages.problems_of(messages.updated())]
    if missing:
        sys.stderr.write(
            "\n".join([*missing, "run python tools/messages.py update, and translate them"]) + "\n"
        )
        return 1
    if not messages.is_compiled():
        messages.compile_catalogue()
    is_check = "--check" in arguments
    stale = [path for path, _ in stale_files()] if is_check else rewrite()
    if not stale:
        return 0
    names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
    advice = (
        "run python tools/docs/generate.py" if is_check else f"they change with each of {MAX_ROUNDS} rounds"
    )
    sys.stderr.write(f"stale: {names}; {advice}\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""HTML from values, so that no text gets in unescaped.

An `Html` is markup; only this module makes one. `element` takes children of that type as they are and escapes every
other text, so a text that a rank, a node or a person wrote can do nothing. The file of a report has no script, loads
nothing, and its policy forbids both; the page of `ui` loads one script, style and icon of ours by fixed names.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clusterctl.plans.facts.untrusted import INVISIBLE, show_escaped

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*")
_SPECIAL = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord('"'): "&quot;", ord("'"): "&#39;"}
_EMPTY = {"meta", "br", "hr", "line", "path", "rect", "circle", "col", "input"}
_ACTIVE = {"script", "iframe", "object", "embed", "base", "form", "link", "style", "img", "foreignObject"}


@dataclass(frozen=True)
class Html:
    """Markup that is safe to show."""

    markup: str

    def __str__(self) -> str:
        raise TypeError("Html does not become a text: put it into an element")


Child = Html | str | int | None
NOTHING = Html("")


def escape(text: str) -> str:
    """Write a text so that it is nothing but text; what an eye would miss becomes visible, a tab four spaces."""
    return INVISIBLE.sub(show_escaped, text.replace("\t", "    ")).translate(_SPECIAL)


def element(tag: str, *children: Child, **attributes: str | float | None) -> Html:
    """Make an element; of attributes, `class_` is `class`, `_` is `-`, and None leaves one out."""
    if not _NAME.fullmatch(tag) or tag in _ACTIVE:
        raise ValueError(f"no element {tag!r} in a report")
    words = "".join(_attribute(name, value) for name, value in attributes.items() if value is not None)
    if tag in _EMPTY:
        return Html(f"<{tag}{words}/>" if tag in ("line", "path", "rect", "circle") else f"<{tag}{words}>")
    return Html(f"<{tag}{words}>{join(children).markup}</{tag}>")


def _attribute(name: str, value: str | float) -> str:
    written = name.rstrip("_").replace("_", "-")
    if not _NAME.fullmatch(written) or written.startswith("on") or written in ("style", "src", "srcdoc"):
        raise ValueError(f"no attribute {written!r} in a report")
    if written == "href" and not str(value).startswith("#"):
        raise ValueError("a report links to nothing but itself")
    return f' {written}="{escape(str(value))}"'


def join(children: Iterable[Child]) -> Html:
    """Put markup and texts one after the other."""
    return Html(
        "".join(
            child.markup if isinstance(child, Html) else escape(str(child))
            for child in children
            if child is not None
        )
    )


def table(headings: Sequence[str], rows: Iterable[Html]) -> Html:
    """Put rows below headings; what is too wide is scrolled, with the keyboard too."""
    head = element("tr", *(element("th", text, scope="col") for text in headings))
    content = element("table", element("thead", head), element("tbody", *rows))
    return element("div", content, class_="scroll", tabindex=0)


def document(title: str, language: str, style: str, body: Html) -> str:
    """Return the whole file; the style is ours, and the policy allows it by its hash."""
    digest = b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    if "<" in style:
        raise ValueError("a style with markup in it")
    head = join(
        [
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=policy),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="referrer", content="no-referrer"),
            element("meta", name="color-scheme", content="light dark"),
            element("title", title),
            Html(f"<style>{style}</style>"),
        ]
    )
    page = element("html", element("head", head), element("body", body), lang=language)
    return f"<!doctype html>\n{page.markup}\n"


STYLE_FILE, SCRIPT_FILE, ICON_FILE = "page.css", "page.js", "page.svg"


def live_document(title: str, language: str, body: Html) -> str:
    """Return a page with our own style, script and icon, which are files next to it; its policy is a header."""
    head = join(
        [
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="color-scheme", content="light dark"),
            element("title", title),
            Html(f'<link rel="icon" href="{ICON_FILE}"><link rel="stylesheet" href="{STYLE_FILE}">'),
            Html(f'<script src="{SCRIPT_FILE}" defer></script>'),
        ]
    )
    page = element("html", element("head", head), element("body", body), lang=language)
    return f"<!doctype html>\n{page.markup}\n"

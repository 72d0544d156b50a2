"""The page of codes: a section for each, by family, from the table of codes (`clusterctl/codes`)."""

from __future__ import annotations

from tables import anchor, literal, plain

from clusterctl.codes.lookup import FAMILIES, entries, family_of
from clusterctl.plans.checks.registry import all_checks
from clusterctl.plans.explain import GRADES, SEVERITIES
from clusterctl.plans.runs.verdict import render_command
from clusterctl.protocol.known_errors import all_symptoms
from clusterctl.translation import language, tr

NAMED = {"node": "gpu02", "rank": "3", "module": "timm", "path": "/data/images", "run": "RUN"}


def codes(_: str) -> str:
    """Write the families, then the codes of each."""
    titles = {family: f"{tr(title)}{colon()}CC-{family}" for family, title in FAMILIES.items()}
    index = "".join(f"- [{title}](#{anchor(title)})\n" for title in titles.values())
    return "\n".join([index, *(section(family, title) for family, title in titles.items())])


def colon() -> str:
    """Return the colon of the language in use."""
    return ": " if language() == "en" else "\uff1a"


def section(family: str, title: str) -> str:
    """Write the codes of one family."""
    found = sorted(code for code in entries() if family_of(code) == family)
    return "\n".join([f"## {title}\n", *map(entry, found)])


def entry(code: str) -> str:
    """Write one code: what it means and why it matters, what programs print, more about it, what to do."""
    one = entries()[code]
    texts = tr("Printed: {}.").format(", ".join(map(literal, one.texts))) if one.texts else ""
    do = tr("To do: {}").format(plain(tr(one.do)))
    related = tr("See {}.").format(f"[{one.related}](#{one.related.lower()})")
    parts = (
        join(head(code), plain(tr(one.why))),
        texts,
        plain(tr(one.what)),
        join(ended(do), related if one.related else ""),
        f"`{command}`" if (command := render_command(code, NAMED)) else "",
    )
    return f"### {code}\n\n" + "\n\n".join(filter(None, parts)) + "\n"


def head(code: str) -> str:
    """Write what a code means, and of which kind it is: how severe a finding is, how near to the cause a text is."""
    title, kind = plain(tr(entries()[code].title)), kind_of(code)
    return tr("**{}** ({}).").format(title, kind) if kind else ended(f"**{title}**")


def kind_of(code: str) -> str:
    """Return how severe a finding is, at which step an error comes, or whether a text is a cause."""
    one = entries()[code]
    for known in all_symptoms():
        if known.code == code:
            return tr(GRADES[known.grade])
    kind = tr(SEVERITIES[one.severity])
    if one.when:
        return tr("{severity}, {when}", severity=kind, when=tr(one.when))
    return kind if code in all_checks() else ""


def ended(text: str) -> str:
    """Put a full stop where a text has none."""
    stop = "." if language() == "en" else "\u3002"
    return text if text.endswith((".", "?", "!", ":", "\u3002", "\uff1f")) else text + stop


def join(*texts: str) -> str:
    """Put sentences in one line; Chinese needs no space between them."""
    return (" " if language() == "en" else "").join(filter(None, texts))

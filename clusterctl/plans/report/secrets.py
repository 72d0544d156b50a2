"""Secrets struck out of a page: those whose values are known, and texts that look like keys of well-known services."""

from __future__ import annotations

import re
from collections.abc import Iterable

from clusterctl.plans.report.markup import escape
from clusterctl.protocol.redact import REDACTED, redact_values, secret_values

_TAG = re.compile(r"(<[^>]*>)")  # no value in a tag of ours holds a bare `>`
_LABEL = re.compile(r'(?<= aria-label=")[^"]*')
_KEYS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[\w-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|xox[abp]-[\w-]{10,}"
    r"|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|glpat-[\w-]{16,})"
)
# A JSON Web Token: eyJ and 10 more, 10, 5. In one pattern a long text full of eyJ- would take its square of time.
_DOTTED, _JSON, _LENGTHS = re.compile(r"[\w.-]{30,}"), re.compile(r"\beyJ"), (13, 10, 5)
_NAMED = re.compile(
    r"((?:api[_-]?key|access[_-]?key|token|secret|passw(?:or)?d)(?:&quot;|&#39;)?\s{0,2}[=:]\s{0,2}(?:&quot;|&#39;)?)"
    r"(?=[^\s&]{0,40}[A-Za-z])([^\s&]{6,})",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"(://[^\s/:@]{1,100}:)[^\s/@]{1,200}(?=@)")


def hide_secrets(page: str, secrets: Iterable[str]) -> str:
    """Replace them in all texts of a page; its own markup stays as it is."""
    values = [escape(value) for value in secret_values(secrets)]

    def hide(text: str) -> str:
        text = _DOTTED.sub(_hide_tokens, _KEYS.sub(REDACTED, redact_values(text, values)))
        return _LOGIN.sub(rf"\g<1>{REDACTED}", _NAMED.sub(rf"\g<1>{REDACTED}", text))

    head, body_tag, body = page.partition("<body>")  # before it stands our style
    parts = _TAG.split(body)
    parts[::2] = map(hide, parts[::2])
    parts[1::2] = [
        _LABEL.sub(lambda label: hide(label.group()), tag) if " aria-label=" in tag else tag
        for tag in parts[1::2]
    ]
    title = re.sub(r"(?<=<title>)[^<]*", lambda found: hide(found.group()), head)
    return f"{title}{body_tag}{''.join(parts)}"


def _hide_tokens(dotted: re.Match[str]) -> str:
    """Replace three parts in a row that are a JSON Web Token; the first begins where its own text does."""
    parts, kept, number = dotted.group().split("."), [], 0
    while number < len(parts):
        begins = _JSON.search(parts[number])
        place = begins.start() if begins else 0
        lengths = [len(parts[number]) - place, *map(len, parts[number + 1 : number + 3])]
        if begins and len(lengths) == 3 and all(map(int.__ge__, lengths, _LENGTHS)):
            kept.append(parts[number][:place] + REDACTED)
            number += 3
        else:
            kept.append(parts[number])
            number += 1
    return ".".join(kept)

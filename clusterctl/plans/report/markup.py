"""HTML from values, so that no text gets in unescaped, with its style, and with secrets struck out.

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
from clusterctl.protocol.redact import REDACTED, redact_values, secret_values

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*")
_SPECIAL = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord('"'): "&quot;", ord("'"): "&#39;"}
_EMPTY = {"meta", "br", "hr", "line", "path", "rect", "circle", "col", "input"}
_DRAWN = {"line", "path", "rect", "circle"}  # of which a title can be a child
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
    if tag in _EMPTY and not children:
        return Html(f"<{tag}{words}/>" if tag in _DRAWN else f"<{tag}{words}>")
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


def join_lines(texts: Iterable[str]) -> Html:
    """Put texts below each other; a line break in one of them is not one."""
    pieces = [piece for text in texts for piece in (text, element("br"))]
    return join(pieces[:-1])


def table_row(*cells: Child, class_: str | None = None) -> Html:
    """Return a row of a table."""
    return element("tr", *(element("td", cell) for cell in cells), class_=class_)


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


_TAG = re.compile(r"(<[^>]*>)")  # no value in a tag of ours holds a bare `>`
_LABEL = re.compile(r'(?<= aria-label=")[^"]*')
_KEYS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[\w-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|xox[abp]-[\w-]{10,}"
    r"|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|glpat-[\w-]{16,})"
)
# A JSON Web Token: eyJ and 10 more, 10, 5. In one pattern a long text full of eyJ- would take its square of time.
_DOTTED, _JSON, _LENGTHS = re.compile(r"[\w.-]{30,}"), re.compile(r"\beyJ"), (13, 10, 5)
_SECRET = r"(?:api[_-]?key|access[_-]?key|token|secret|passw(?:or)?d)"
_SECRET_NAME = re.compile(rf"{_SECRET}\Z", re.IGNORECASE)
_NAMED = re.compile(
    rf"((?:{_SECRET}(?:&quot;|&#39;)?\s{{0,2}}[=:]\s{{0,2}}|--[\w-]{{0,40}}{_SECRET}\s{{1,2}}(?!-))(?:&quot;|&#39;)?)"
    r"(?=[^\s&]{0,40}[A-Za-z])([^\s&]{6,})",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"(://[^\s/:@]{1,100}:)[^\s/@]{1,200}(?=@)")


def hide_named(name: str, value: str) -> str:
    """Return a value that is shown apart from its name, such as in another cell; in place of a secret what hides it."""
    return REDACTED if value and _SECRET_NAME.search(name) else value


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


STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#57606a;--line:#d5dae0;--box:#f5f7f9;--bad:#b42318;
--good:#1a7f37;--warn:#8a5a00;--run:#0b57b0;--wait:#465a7d;
--run-box:#e2effd;--warn-box:#fbf0d4;--good-box:#eaf8ee;--bad-box:#fdeae8;--dim-box:#eaedf1;--wait-box:#e7ecf5;
--c0:#0b62c4;--c1:#b54708;--c2:#1a7f37;--c3:#8430ce;--c4:#b42318;--c5:#00757f;--c6:#8a5a00;--c7:#5b6470;
--band:#0b62c440;--pointed:#0b62c41f;
--preparing:#5d7094;--setup:#7468b8;--waiting:#7b8aa8;--starting:#3d7f9e;--running:#1667c9;--stopping:#7d858f;
--after:#8a60b8;--between:#dfe4e9;--stall:#ffffff80;--stripe:#8a5a00}
@media screen and (prefers-color-scheme:dark){:root{--bg:#12161b;--fg:#e3e8ed;--dim:#9aa6b2;--line:#353d47;
--box:#1b2129;--bad:#ff8a80;--good:#6fd08c;--warn:#e8b04a;--run:#84beff;--wait:#a9b9d6;
--run-box:#152f4d;--warn-box:#3a2d12;--good-box:#16351f;--bad-box:#421d1c;--dim-box:#262d36;--wait-box:#222d40;
--c0:#6cb2ff;--c1:#f0a35e;--c2:#6fd08c;--c3:#c79bff;--c4:#ff8a80;--c5:#5ccfd9;--c6:#e0bd57;--c7:#aab4bf;
--band:#6cb2ff4d;--pointed:#6cb2ff33;
--preparing:#7588ac;--setup:#8f84cc;--waiting:#a3afc6;--starting:#5fa3c0;--running:#4090f0;--stopping:#868f99;
--after:#9f7fc8;--between:#39424c;--stall:#12161b80;--stripe:#e8b04a}}
*{box-sizing:border-box}
body{margin:0 auto;padding:.8rem 1.2rem 2rem;max-width:1180px;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.35rem;margin:.4rem 0 .2rem}h2{font-size:1.1rem;margin:1.1rem 0 .4rem;
border-bottom:1px solid var(--line);padding-bottom:.2rem}
h3{font-size:1rem;margin:1.2rem 0 .4rem}p{margin:.3rem 0}
code,pre,.mono{font:13px/1.45 ui-monospace,Menlo,Consolas,monospace}
pre{background:var(--box);border:1px solid var(--line);border-radius:6px;padding:.6rem .8rem;margin:.4rem 0;
white-space:pre-wrap;overflow-wrap:anywhere}
h1.mono{font-size:1.35rem;font-weight:600}figure p{font-size:13px}.faint{color:var(--dim)}
.bad{color:var(--bad)}.good{color:var(--good)}.warn{color:var(--warn)}
.result{border:1px solid var(--line);border-left:6px solid var(--dim);border-radius:6px;padding:.6rem 1rem;
background:var(--box);margin:.8rem 0}
.result.bad{border-left-color:var(--bad);color:inherit}.result.good{border-left-color:var(--good);color:inherit}
.result b{font-size:1.08rem}.result pre{border:0;padding:.2rem 0;background:none}
table{border-collapse:collapse;width:100%;font-size:14px}th,td{text-align:left;padding:.14rem .7rem .14rem 0;
border-bottom:1px solid var(--line);vertical-align:top}
th{font-weight:600;color:var(--dim)}.scroll table{overflow-wrap:break-word}
thead th,td.mono{white-space:nowrap}
dl.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,340px),1fr));gap:0 1.6rem;
margin:0;font-size:14px}.facts div{display:flex;gap:.7rem;border-bottom:1px solid var(--line);padding:.14rem 0}
.facts dt{flex:0 0 9rem;font-weight:600;color:var(--dim)}.facts dd{margin:0;min-width:0}
.scroll{overflow-x:auto}
figure{margin:.3rem 0;break-inside:avoid}figcaption{font-size:13px}
svg.sparkline{display:inline-block;vertical-align:middle;width:100px;height:24px;overflow:visible}
.plots{display:flex;flex-wrap:wrap;gap:.5rem 1.1rem}.plots>.plot{flex:1 1 min(100%,340px);min-width:0}
.plots.pairs>.plot{flex-basis:min(100%,400px)}
.plots.nodes-plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,180px),1fr));gap:.2rem .6rem}
.plot{display:grid;grid-template:1fr auto auto/minmax(0,1fr)}
.plot>figcaption{grid-area:1/1}.plot>.drawing{grid-area:2/1}
.axis-switch{margin:0;font-size:13px}.axis-switch label{margin-right:.7rem}.over-time{display:none}
.numbers:has(.choose-time:checked)>.over-time{display:block}.numbers:has(.choose-time:checked)>.over-steps{display:none}
.quantity{margin:.9rem 0 .1rem;font-size:14px}
.drawing{display:block;width:100%;padding:18px 6px 22px 66px;overflow:visible;outline-offset:1px}
.lines{overflow:visible}.line{fill:none;stroke-width:1.5;stroke-linejoin:round;vector-effect:non-scaling-stroke}
.band{fill:var(--band)}.values line{stroke:var(--line)}
:is(.axis,.values,.sign){font-size:12px}:is(.axis,.values){fill:var(--dim)}.axis,.sign{text-anchor:middle}
.values{text-anchor:end}.values text{dominant-baseline:central}.first{text-anchor:start}.last{text-anchor:end}
.samples{fill:transparent}.samples rect{height:140px}.small .samples rect{height:70px}
.samples rect:hover{fill:var(--pointed)}
.stall rect{fill:var(--stall)}.stall line{stroke:var(--stripe);stroke-dasharray:1.5 5;transform:skewX(-45deg)}
.plot .stall line{stroke-opacity:.6}
.mark{stroke:var(--warn);stroke-dasharray:3 3}.mark.failed{stroke:var(--bad);stroke-width:1.6}
.sign{fill:var(--warn);font-weight:600}.sign.failed{fill:var(--bad)}
.key{font-size:12px;display:inline-block;max-width:100%;margin-right:.4em}
.swatch{display:inline-block;width:.75em;height:.75em;background:currentColor;print-color-adjust:exact}
.swatch.band{background:var(--band)}
.swatch.stall{background:repeating-linear-gradient(135deg,var(--stripe) 0 1.5px,transparent 1.5px 4.5px)}
.line.c0{stroke:var(--c0)}.line.c1{stroke:var(--c1)}.line.c2{stroke:var(--c2)}.line.c3{stroke:var(--c3)}
.line.c4{stroke:var(--c4)}.line.c5{stroke:var(--c5)}.line.c6{stroke:var(--c6)}.line.c7{stroke:var(--c7)}
.swatch.c0{color:var(--c0)}.swatch.c1{color:var(--c1)}.swatch.c2{color:var(--c2)}.swatch.c3{color:var(--c3)}
.swatch.c4{color:var(--c4)}.swatch.c5{color:var(--c5)}.swatch.c6{color:var(--c6)}.swatch.c7{color:var(--c7)}
.preparing{fill:var(--preparing);color:var(--preparing)}.setup{fill:var(--setup);color:var(--setup)}
.waiting{fill:var(--waiting);color:var(--waiting)}
.starting{fill:var(--starting);color:var(--starting)}.running{fill:var(--running);color:var(--running)}
.marks{list-style:none;margin:.2rem 0;padding:0;font-size:13px}
.stopping{fill:var(--stopping);color:var(--stopping)}
.after{fill:var(--after);color:var(--after)}.between{fill:var(--between);color:var(--between)}
.chip{display:inline-block;padding:.05em .6em;border:1px solid currentColor;border-radius:1em;font-size:12px;
font-weight:600;line-height:1.5;white-space:nowrap;color:var(--dim);background:var(--dim-box);
print-color-adjust:exact}
.state-running{color:var(--run);background:var(--run-box)}
.state-stalled{color:var(--warn);background:var(--warn-box)}
.state-succeeded{color:var(--good);background:var(--good-box)}
:is(.state-failed,.state-failed_setup,.state-lost,.state-timeout){color:var(--bad);background:var(--bad-box)}
:is(.state-stopped,.state-cancelled,.state-was-stopped,.state-unknown){color:var(--dim);background:var(--dim-box)}
:is(.state-queued,.state-submitted,.state-preparing,.state-waiting,.state-starting){color:var(--wait);
background:var(--wait-box)}
.head{margin:.4rem 0 .8rem}.head :is(h1,h2){font-size:1.5rem;margin:0;border:0;padding:0;display:flex;flex-wrap:wrap;
align-items:center;gap:.2rem .7rem}.head-facts{display:flex;flex-wrap:wrap;gap:.1rem 1.4rem;list-style:none;padding:0;
margin:.3rem 0 0}.full-id{color:var(--dim);font-size:12px;margin:.2rem 0 0}
.result h2{border:0;margin:.1rem 0 .3rem;padding:0;font-size:1.15rem}.result.warn{border-left-color:var(--warn);
color:inherit}.result.bad h2{color:var(--bad)}.result .code{font-size:12px;font-weight:400;color:var(--dim);
white-space:nowrap}.place code+code{color:var(--dim)}
dl.cause{margin:.5rem 0 .2rem}.cause>div{display:grid;grid-template-columns:3.2rem minmax(0,1fr);gap:.1rem .6rem;
padding:.12rem 0}.cause dt{color:var(--dim);font-weight:600}.cause dd{margin:0}
.result :is(dd,p)>code,dd code{
background:var(--bg);border:1px solid var(--line);border-radius:4px;padding:.05rem .35rem}
.ranks p,.ranks details{margin:.25rem 0}
.compared{table-layout:fixed}.compared thead :first-child{width:26%}.compared th[scope=row]{font-weight:400;
color:var(--fg)}.compared th.group{padding-top:.9rem;border-bottom:2px solid var(--line)}
.lanes{display:grid;grid-template-columns:fit-content(14rem) minmax(0,1fr);gap:0 .8rem;margin:.3rem 0}
.lane-name{font-size:13px;line-height:20px}.lane{overflow:visible}
@media(max-width:600px){.lanes{display:block}.lane-name{display:block;margin-top:.3rem}}
details{margin:.3rem 0}summary{cursor:pointer}summary:focus-visible{outline:2px solid var(--c0)}
@media print{.axis-switch{display:none}
body{max-width:none;font-size:11px;padding:0}:is(code,pre,.mono,table,dl.facts){font-size:10.5px}
.chip{font-size:10px}.on-paper::details-content{content-visibility:visible;display:block}
pre,.plot,tr{break-inside:avoid}
h2,h3,summary{break-after:avoid}.scroll table{overflow-wrap:anywhere}}
@media(max-width:700px){.extra{display:none}}
@media(max-width:600px){body{padding:.6rem .7rem 3rem}.facts dt{flex-basis:6.5rem}pre{padding:.5rem}}
"""

"""HTML from values: texts do nothing, markup is made in one place, and secrets are struck out of the page."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from reported import HOSTILE, Tags

from clusterctl.plans.report import markup
from clusterctl.plans.report.markup import document, element, escape, hide_secrets, join
from clusterctl.protocol.redact import REDACTED

FOLDER = Path(markup.__file__).parent


def test_a_hostile_text_stays_a_text() -> None:
    """As a child and as an attribute; what an eye would miss is visible."""
    page = element("p", HOSTILE, aria_label=HOSTILE).markup
    seen = Tags(page)
    assert (seen.tags, seen.attributes) == (["p"], {"aria-label"})
    assert seen.text == "</pre><script>alert(1)</script>\"' onload=x \\x1b[31m\\u202e\\x00&amp;"
    assert escape("a\nb") == "a\\x0ab"


@pytest.mark.parametrize(
    ("tag", "attributes"),
    [
        ("script", {}),
        ("p onload=x", {}),
        ("p", {"onload": "x"}),
        ("p", {"style": "x"}),
        ("a", {"href": "https://x"}),
        ("a", {"href": "javascript:x"}),
        ("p", {"a b": "x"}),
        ("img", {"src": "x"}),
    ],
)
def test_what_could_act_cannot_be_made(tag: str, attributes: dict[str, str]) -> None:
    """No element or attribute that loads or runs anything."""
    with pytest.raises(ValueError, match="report"):
        element(tag, **attributes)


def test_markup_does_not_become_a_text() -> None:
    """Else an f-string would carry it into another text, where it is escaped, or would have to be trusted."""
    with pytest.raises(TypeError):
        str(element("p"))
    assert join(["<", element("b", "x"), None, 3]).markup == "&lt;<b>x</b>3"


def test_only_one_module_makes_markup_of_text() -> None:
    """`Html(...)` is called nowhere else."""
    for path in FOLDER.glob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        names = {name.id for name in calls if isinstance(name, ast.Name)}
        assert "Html" not in names or path.name == "markup.py", path


def test_a_page_forbids_scripts_and_other_hosts() -> None:
    """The policy allows our style, by its hash, and nothing else; the file names no address."""
    page = document("a <title>", "en", "p{color:red}", element("p", "x"))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src &#39;none&#39;; style-src &#39;sha256-")
    assert "//" not in page and "<title>a &lt;title&gt;</title>" in page
    with pytest.raises(ValueError, match="style"):
        document("", "en", "</style>", element("p"))


def test_secrets_are_struck_out_of_texts_and_markup_stays() -> None:
    """By value, also where it is escaped, and where it has the form of a key; words of the markup are no texts."""
    body = element(
        "p",
        "key a<b&c5 and span, token=abc1234x, https://me:hunter22@host/, hf_abcdefghijklmnopqrstu, tokens: 123456",
        class_="span",
    )
    page = hide_secrets(document("a<b&c5", "en", "", body), ["a<b&c5", "span"])
    seen = Tags(page)
    assert "span" not in seen.text and 'class="span"' in page
    for leaked in ("b&c5", "abc1234x", "hunter22", "hf_abc"):
        assert leaked not in seen.text
    assert "https://me:[secret]@host/" in seen.text and "tokens: 123456" in seen.text


@pytest.mark.parametrize(
    "argument", ["--token Abcd1234efgh", "--db-password Hunter22x", "--api-key 'a1b2c3d4'"]
)
def test_the_value_of_an_option_is_struck_out(argument: str) -> None:
    """Behind a space as behind an equals sign; what only begins alike, or is an option itself, stays."""
    name, _, value = argument.partition(" ")
    seen = Tags(hide_secrets(document("x", "en", "", element("p", f"a.py {argument} --lr 0.1")), [])).text
    assert value.strip("'") not in seen and f"{name} " in seen and "--lr 0.1" in seen
    plain = "a.py --tokenizer Abcd1234 --max-tokens Abcd1234 --use-token --learning-rate a token Abcd1234"
    assert plain in Tags(hide_secrets(document("x", "en", "", element("p", plain)), [])).text


def test_web_tokens_are_struck_out_wherever_they_stand() -> None:
    """In three parts of enough length; what stands around them stays."""
    head, body, proof = "eyJhbGciOiJIUzI1NiJ9", "eyJzdWIiOiIxIn0", "Sfl-xw_J"
    token = f"{head}.{body}.{proof}"
    for text, shown in (
        (f"a --{token}/b", f"a --{REDACTED}/b"),
        (f"x.{token}.y.{token}", f"x.{REDACTED}.y.{REDACTED}"),
        (
            f"x{token}",
            f"x{head}.{body}.{proof}",
        ),  # no beginning of a word, and what follows is too short a proof
        (f"{head}.short.{proof}.{proof}", f"{head}.short.{proof}.{proof}"),
        (f"{head}.{body}.{proof[:4]}", f"{head}.{body}.{proof[:4]}"),
    ):
        assert hide_secrets(f"<body>{text}</body>", []) == f"<body>{shown}</body>"


def test_a_long_text_full_of_beginnings_of_tokens_takes_no_time() -> None:
    """A node may send it as a stack or as arguments; each beginning once read all that follows, for hours."""
    for text in ("eyJ-" * (1 << 19), "eyJ-." * (1 << 19)):
        assert hide_secrets(f"<body>{text}</body>", []) == f"<body>{text}</body>"

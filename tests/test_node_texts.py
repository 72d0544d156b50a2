"""Texts of nodes are translated by what they say, and whatever matches no template stays as it was sent."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from package import Module, modules

from clusterctl.client.rpc.errors import node_error, start_error, step_timed_out
from clusterctl.node_texts import FREE, MAX_TEXT, TEMPLATES, find_template, translate_node_text
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.translation import fill, tr, use_language

NAMES = re.compile(r"\{([a-z_]+)\}")
RAISED = ("VerbError", "ChannelError", "TransferError", "StepFailed", "StepError")
# Raised for the agent's own log or for a peer, which no client reads; the rest are texts within a text.
NOT_SHOWN = {
    "{}",
    "a stranger",
    "the connection was closed",
    "a file changed in transfer: more than its {} bytes came",
    "a file changed in transfer: its content is not {}",
    "{}; its first part came from another node",
    "no free port for the rendezvous: {} are in use",
    "node 0 cannot listen {} for the other nodes: {}",
}


@pytest.fixture
def chinese() -> Iterator[None]:
    """Use Chinese in a test."""
    use_language("zh")
    yield
    use_language("en")


def sample(template: str) -> tuple[str, dict[str, str]]:
    """Fill a template with facts of the kind that nodes send."""
    facts = {name: f"some {name} here" if name in FREE else f"{name}-1" for name in NAMES.findall(template)}
    return fill(template, facts), facts


def test_every_template_is_found_again_with_its_facts(chinese: None) -> None:  # noqa: ARG001 - sets the language
    """English to facts to Chinese, and no fact is lost on the way."""
    for template in TEMPLATES:
        text, facts = sample(template)
        found, read = find_template(text) or ("", {})
        assert fill(found, read) == text, template  # a template with more literal text may say the same
        assert translate_node_text(text) == tr(template, **facts), template
        assert found != template or read == facts, template


def test_a_reason_within_a_reason_is_translated(chinese: None) -> None:  # noqa: ARG001 - sets the language
    """As deep as nodes nest them; what is unknown inside stays."""
    text = "node 0 (gpu01) is lost: it was silent for 20 s"
    assert translate_node_text(text) == "0 号节点（gpu01）失联：20 秒无响应"
    assert translate_node_text("before: RuntimeError") == "before：RuntimeError"


@pytest.mark.parametrize(
    "text",
    ["", "RuntimeError: bad value", "完全不同的文字", "a" * (MAX_TEXT + 1), "it is lost in thought"],
)
def test_other_texts_stay(text: str, chinese: None) -> None:  # noqa: ARG001 - sets the language
    """Nothing is guessed."""
    assert translate_node_text(text).replace("：", ": ") == text


def test_english_is_left_alone() -> None:
    """In English a text is shown as it was sent, so that JSON holds what nodes wrote."""
    text, _ = sample(TEMPLATES[0])
    assert translate_node_text(text) == text


def test_no_two_placeholders_touch() -> None:
    """A literal stands between any two, so that a text is read in one pass."""
    assert [template for template in TEMPLATES if re.search(r"\}\{", template)] == []


def test_an_error_of_a_node_is_shown_in_chinese(chinese: None) -> None:  # noqa: ARG001 - sets the language
    """Message, and evidence of a start that failed."""
    error = node_error("gpu01", Untrusted({"code": "CC-RUN-011", "message": "no run x on gpu01 in /scratch"}))
    assert error.message == "在 gpu01 的 /scratch 中没有任务 x"
    failed = start_error(Untrusted({"event": "setup_failed", "why": "setup: `make` exited with 2"}), "gpu01")
    assert failed.message == "setup：`make` 退出，退出码 2"


def test_an_error_keeps_its_english(chinese: None) -> None:  # noqa: ARG001 - sets the language
    """Also that of facts that are texts: what is recorded on nodes does not depend on who looks on."""
    error = node_error("gpu01", Untrusted({"code": "CC-RUN-011", "message": "no run x on gpu01 in /scratch"}))
    assert error.english == "no run x on gpu01 in /scratch"
    timed_out = step_timed_out("gpu01", tr("answer from {verb}", verb="ps"), 20.0)
    assert timed_out.message != timed_out.english
    assert "answer from ps" in timed_out.english
    assert not re.search(r"[\u4e00-\u9fff]", timed_out.english)


def test_what_nodes_raise_is_in_the_table() -> None:
    """A new text of a node needs a template, or it stays English on a Chinese screen."""
    known = {NAMES.sub("{}", template) for template in TEMPLATES}
    raised = {text: f"{module.path}" for module in modules() for text in raised_texts(module)}
    assert {text: place for text, place in raised.items() if text not in known | NOT_SHOWN} == {}


def raised_texts(module: Module) -> Iterator[str]:
    """Yield the texts that a module of the nodes raises, with `{}` for each value."""
    if module.layer != "node":
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in RAISED:
            is_coded = getattr(node.func, "id", "") == "VerbError"
            yield from map(skeleton, node.args[1:2] if is_coded else node.args[:1])


def skeleton(node: ast.expr) -> str:
    """Write a text with `{}` for what is not known before it runs."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant):
        return re.sub(r"%[sdrg]", "{}", str(node.left.value))
    return "{}"

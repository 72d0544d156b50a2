"""What is counted and measured is Chinese on a Chinese screen, and English in what is written down or sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from clusterctl.node_texts import translate_node_text
from clusterctl.plans.checks.collective import render_time as render_short_time
from clusterctl.plans.report.plot import render_time
from clusterctl.specs.text import begin_commands, render_duration, render_seconds, render_size
from clusterctl.translation import english_of, fill_chinese, use_language

LATIN = re.compile("[A-Za-z]")


@pytest.fixture(autouse=True)
def chinese() -> Iterator[None]:
    """Use Chinese."""
    use_language("zh")
    yield
    use_language("en")


@pytest.mark.parametrize(
    ("render", "value", "shown"),
    [
        (render_size, 409, "409 字节"),
        (render_size, 1, "1 字节"),
        (render_duration, 74, "1 分 14 秒"),
        (render_duration, 0, "0 秒"),
        (render_duration, 90000, "1 天 01 小时"),
        (render_seconds, 3.64, "3.6 秒"),
        (render_seconds, 129.9, "2 分 10 秒"),
        (render_duration, 600, "10 分钟"),
        (render_duration, 11520, "3 小时 12 分"),
        (render_time, 74, "1 分 14 秒"),
        (render_time, 5400, "1 小时 30 分"),
        (render_short_time, 1.5, "1.5 秒"),
    ],
)
def test_a_number_has_a_chinese_unit(render: Callable[[float], str], value: float, shown: str) -> None:
    """No `s`, `min` or `bytes` is left."""
    assert render(value) == shown and not LATIN.search(render(value))


def test_what_is_sent_keeps_its_english() -> None:
    """Messages to a chat and JSON are English in every language."""
    assert english_of(render_duration(74)) == "1m14s"
    assert english_of(render_seconds(3.64)) == "3.6 s"


@pytest.mark.parametrize(
    "text", ["Network is unreachable", "not prepared", "does not take the signal", "ip: in the inventory"]
)
def test_a_reason_of_a_node_is_translated(text: str) -> None:
    """A record keeps it in English; a screen and the report do not show it so."""
    assert re.search("[\u4e00-\u9fff]", translate_node_text(text))


def test_a_space_does_not_stand_beside_a_full_width_sign() -> None:
    """The space of a template is for Latin words only."""

    assert fill_chinese("{ranks} 没有进入", {"ranks": "rank 1（gpu02）"}) == "rank 1（gpu02）没有进入"
    assert fill_chinese("{ranks} 没有进入", {"ranks": "rank 1"}) == "rank 1 没有进入"


def test_advice_begins_as_the_command_did() -> None:
    """Pasted elsewhere it would look at another cluster."""
    advice = "查看全部调用栈：`clusterctl diagnose --stacks`；说明：`clusterctl explain CC-HANG-004`"

    assert begin_commands(advice, "clusterctl --lab a").count("`clusterctl --lab a ") == 2
    assert begin_commands("restart clusterctl", "clusterctl -i x") == "restart clusterctl"

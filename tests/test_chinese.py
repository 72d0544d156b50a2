"""Chinese texts: one word for each concept, full-width punctuation, units written out; no Chinese in English."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from babel.messages.pofile import read_po
from pages import ROOT

from clusterctl.codes.lookup import FAMILIES, entries

CATALOGUE = ROOT / "clusterctl/locale/zh_CN/LC_MESSAGES/clusterctl.po"
HAN = "[\u4e00-\u9fff]"
INSTEAD = {  # a word that stood beside another one for the same: the one word
    "接入|跟踪|(?<!不)跟随任务|持续查看": "重新连接（attach）、持续显示（follow）",
    "密钥类|密钥变量|敏感变量": "secret",
    "你的电脑|自己的电脑|你的机器|这台电脑": "本机",
    "根本原因": "根因",
    "时间限制|时间上限": "时限",
    "宽限期": "宽限时间",
    "被杀|杀死|杀掉": "终止（信号）、停止（stop）",
    "失去响应": "无响应、失联",
    "(?<![0-9a-z] )节点 0(?![0-9])|0 号 rank": "0 号节点、rank 0",
    "名字": "名称",
    "home 目录": "主目录",
    "账户": "账号",
    "拷贝": "复制",
    "文件夹": "目录",
    "残余|遗留|孤儿进程": "残留",
    "试试": "建议",
    "IPv4 网络": "IPv4 网段",
    "[0-9两三四] ?台[^，。；：]{0,12}节点": "个节点",
}
PUNCTUATION = {
    rf"{HAN}[,;:?!](?=\s|{HAN}|$)": "全角标点",
    rf"{HAN} ?\((?!\))|\((?={HAN})|(?<!\w)\([^()]*\) ?(?={HAN})": "全角括号",
    r"(?:[0-9] |\} ?)(?:s|min)(?![\w/+^-])": "秒、分钟",
}
_CODE = re.compile(r"`[^`]*`|\]\([^)]*\)")
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def messages() -> Iterator[tuple[str, str]]:
    """Give the Chinese of the catalogue of messages, with its English."""
    with CATALOGUE.open("rb") as file:
        for entry in read_po(file, locale="zh_CN"):
            strings = entry.string if isinstance(entry.string, tuple) else (entry.string,)
            yield from ((str(entry.id), text) for text in strings if entry.id)


def pages() -> list[Path]:
    """List the Chinese pages."""
    return [
        *ROOT.glob("docs/zh/**/*.md"),
        ROOT / "README.zh-CN.md",
        *ROOT.glob("playbooks/**/README.zh-CN.md"),
    ]


def prose() -> Iterator[tuple[str, str]]:
    """Give the Chinese that is no output: messages and pages."""
    yield from messages()
    for page in pages():
        for line in _FENCE.sub("", page.read_text("utf-8")).splitlines():
            yield page.name, line


def found(patterns: dict[str, str], texts: Iterator[tuple[str, str]]) -> list[str]:
    """List what a text should have otherwise; what is code in it does not count."""
    return sorted(
        {
            f"{where[:60]}: {match[0]!r} in {text[:80]!r}: {instead}"
            for where, text in texts
            if re.search(HAN, text)
            for pattern, instead in patterns.items()
            if (match := re.search(pattern, _CODE.sub("`", text)))
        }
    )


def test_a_concept_has_one_word() -> None:
    """Two words for the same are two things to who reads them for the first time; also in output that a page shows."""
    output = ((page.name, line) for page in pages() for line in page.read_text("utf-8").splitlines())

    assert found(INSTEAD, (pair for source in (prose(), output) for pair in source)) == []


def test_punctuation_and_units_are_chinese() -> None:
    """In a sentence with Chinese; codes and commands keep theirs."""
    assert found(PUNCTUATION, prose()) == []


def test_english_has_no_chinese() -> None:
    """A replacement in files of both languages must not reach the English."""
    texts = (*FAMILIES.values(), *(text for entry in entries().values() for text in entry.prose()))
    assert [text for text in texts if re.search(HAN, text)] == []

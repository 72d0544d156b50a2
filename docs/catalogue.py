"""The catalogue of known failures (`catalogue.yaml`): as values, as tables of the manual, and as `explain` shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

from clusterctl.codes.entry import NOTHING, Text
from clusterctl.plans.checks.registry import all_checks
from clusterctl.translation import language

FILE = Path(__file__).parent / "catalogue.yaml"
FINDINGS = Path(__file__).parent / "en" / "findings.md"
HOW = {
    "check": Text("found before a launch", "启动前发现"),
    "run": Text("reported when it happens", "发生时报告"),
    "design": Text("cannot happen, or does no harm", "不会发生或没有影响"),
    "unseen": Text("not detected", "无法检测"),
}
HEADINGS = (
    Text(""),
    Text("what goes wrong", "故障"),
    Text("what is done about it", "处理方式"),
    Text("codes", "错误码"),
    Text("tested by", "测试"),
)


LISTED = Text(", ", "、")


@dataclass(frozen=True)
class Row:
    """One known failure; `tests` are files or functions below tests/ in which it is provoked for real."""

    number: int
    part: str
    fails: Text
    how: str
    codes: tuple[str, ...]
    tests: tuple[str, ...]
    answer: Text = NOTHING


def rows() -> list[Row]:
    """Read the catalogue."""
    parts = YAML(typ="safe").load(FILE.read_text(encoding="utf-8"))
    listed = [(part["part"], row) for part in parts for row in part["rows"]]
    return [
        Row(
            number,
            part,
            Text(row["fails"], row["zh"]),
            row["how"],
            tuple(row["codes"]),
            tuple(row["tests"]),
            Text(row.get("answer", ""), row.get("answer_zh", "")),
        )
        for number, (part, row) in enumerate(listed, 1)
    ]


def happens() -> dict[str, dict[str, list[str]]]:
    """Give for every code, in each language, the known failures that it stands for."""
    found: dict[str, dict[str, list[str]]] = {name: {} for name in Text._fields}
    for row in rows():
        for code in row.codes:
            for name, text in row.fails._asdict().items():
                found[name].setdefault(code, []).append(text)
    return {name: dict(sorted(codes.items())) for name, codes in found.items()}


def share() -> str:
    """Give the number of known failures of each kind."""
    count = Counter(row.how for row in rows())
    total = sum(count.values())
    if language() == "en":
        return f"Of {total} known failures: {'; '.join(f'{count[how]} {HOW[how].en}' for how in HOW)}."
    kinds = "，".join(f"{count[how]} 种{HOW[how].zh}" for how in HOW)  # noqa: RUF001  Chinese
    return f"共 {total} 种已知故障：其中 {kinds}。"  # noqa: RUF001  Chinese


def cells(part: str) -> Iterator[tuple[str, ...]]:
    """Give the rows of one part of the table."""
    for row in rows():
        if row.part == part:
            codes = LISTED.here.join(f"[`{code}`](findings.md{anchor(code)})" for code in row.codes)
            how = HOW[row.how].here
            end, space = (".", " ") if language() == "en" else ("\u3002", "")
            answer = f"{how[0].upper()}{how[1:]}{end}{space if row.answer.en else ''}{row.answer.here}"
            yield str(row.number), row.fails.here, answer, codes, tested(row)


def anchor(code: str) -> str:
    """Give the anchor of a code on the page of findings; errors of a family stand in one table there."""
    own = f"\n### {code}\n" in FINDINGS.read_text(encoding="utf-8")
    return f"#{code.lower()}" if own else ""


def tested(row: Row) -> str:
    """Name how a row is tested: by cases of plain values, by known texts, and for real."""
    known = all_checks()
    kinds = [
        Text("cases", "用例").here if any(code in known for code in row.codes) else "",
        Text("texts", "文本").here if any(code.startswith("CC-JOB-") for code in row.codes) else "",
        *(f"`{test.rpartition('::')[2] or test}`" for test in row.tests),
    ]
    return LISTED.here.join(kind for kind in kinds if kind)

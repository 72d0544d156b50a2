"""The numbers of one line that a training framework has printed: losses, rates, and the step that they belong to.

One pass over the numbers of a line. What stands before a number, its label, is looked up in the tables of log_words.py;
other numbers are left out: settings (loss_weight: 0.5), dates, versions, addresses. Every expression takes a short text
or bounded repetitions: a line costs what its length is.

    iteration    100/    5000 | lm loss: 6.7E+00 | ...      label "lm loss", number 6.7, of step 100 of 5000
    30%|###   | 30/100 [00:10<00:20, 3.1it/s, loss=0.12]    label "loss", number 0.12, rate 3.1 it/s
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

from . import log_words as words_of

MAX_NAME = 48  # characters
MAX_LABEL = 64  # characters before a number
MAX_NUMBERS = 200  # of a line
MAX_RATE = 1e12
MAX_COLUMNS = 16
MAX_CACHED = 2048  # labels

# A number, then what it is one of (below 2^53), or its unit. Python searches fast for a set of characters: what must
# not stand before it is looked at later.
NUMBER = re.compile(
    r"([\dni](?:(?<=n)an(?![a-z])|(?<=i)nf(?![a-z])|(?<=[1-9])\d{0,2}(?:,\d{3}){1,5}(?!\d|,\d)(?:\.\d{1,30})?"
    r"|(?<=\d)\d{0,19}(?:\.\d{0,30})?(?:e[-+]?\d{1,3})?))"
    r"(?:(?: ?/ {0,8}| of )(\d[\d,]{0,14})(?![\w./])"
    r"|( ?)(%(?!\|)|步|轮|/s(?:/gpu)?|[a-z]{1,10}(?:/[a-z]{1,10}){0,2})(?![a-z0-9_]))?"
)
IN_A_WORD = re.compile(r"[a-z0-9_.@/]")
# What follows a number makes it another one: 0.5s, 1.2.3, 0,5, 2024-01-02, 12:30:00, or one that is longer.
GOES_ON = re.compile(r"[a-z0-9_@]|[.,:-]\d|%\|")
SIGNS = ("-", "+")
ATOMS = re.compile(r"[_/.\s-]+")
WORD_BEFORE = re.compile(r"[a-z][a-z0-9_/-]{0,15}")
IN_BRACKETS = re.compile(r"\]?\s{0,4}\[\s{0,8}")
HEADER = re.compile(r"\s{0,200}[^\W\d][\w/()@.-]{0,30}(?:\s{1,40}[^\W\d][\w/()@.-]{0,30}){2,15}\s{0,200}")
CELL = re.compile(r"[-+]?(?:\d{1,12}(?:\.\d{0,20})?(?:e[-+]?\d{1,3})?|nan|inf)", re.IGNORECASE)


class Position(NamedTuple):
    """Where a training is; `within` is whether step and total count in the epoch, and may be samples as well."""

    step: Optional[int] = None
    total: Optional[int] = None
    epoch: Optional[float] = None
    epochs: Optional[int] = None
    within: bool = False


class LineValues(NamedTuple):
    """What a line holds; `measured` is whether that is more than a bar of progress, `total` are steps to come."""

    values: Dict[str, float]
    position: Position
    measured: bool
    total: Optional[int] = None


NOTHING = LineValues({}, Position(), measured=False)


class _Label(NamedTuple):
    """What the text before a number means for it."""

    metric: str = ""  # the name of what it measures
    is_setting: bool = False
    rate: str = ""
    is_evaluation: bool = False
    step_times: Tuple[str, ...] = ()  # units with which it is the time of a step
    unit: str = ""  # in parentheses
    position: str = ""  # step, epoch, total, or nameless
    in_brackets: bool = False


class _Number(NamedTuple):
    """A number, its label, and what follows it."""

    value: float
    label: _Label
    of: Optional[int] = None
    unit: str = ""
    spaced: bool = False  # a space stands before the unit
    is_count: bool = False


UNUSABLE = _Number(math.nan, _Label())


def has_hint(line: bytes) -> bool:
    """Return whether a line may hold a number of interest: most lines of a log do not."""
    low = line.lower()
    return any(hint in low for hint in words_of.HINTS)


def read_line(line: str) -> LineValues:
    """Read a line; it belongs to no other line."""
    low = " " + _normalize(line)  # something stands before each number
    if ("(" in low and words_of.SETTINGS_ECHO.search(low)) or low.startswith(" wandb:"):
        return NOTHING
    bar = words_of.PERCENT_BAR.search(low) if "%|" in low else None
    numbers = _find_numbers(low)
    measured, settings = _find_metrics(numbers)
    evaluation = (
        words_of.EVALUATION.search(low) if any(kind in low for kind in words_of.EVALUATIONS) else None
    )
    if evaluation and "loss" not in low[: evaluation.start()]:
        # A step of all steps is one of the evaluation; one alone is the training's.
        step = _find_position(numbers, is_expected=False)
        values = {_of_evaluation(name, evaluation.group(1)): value for name, value in measured.items()}
        return LineValues(values, Position(None if step.total else step.step), bool(values))
    position = _find_position(numbers, is_expected=bar is not None or bool(measured))
    if bar is not None and not measured and not words_of.TRAINING_BAR.fullmatch(low, 1, bar.start()):
        return NOTHING
    named, by_unit = _find_rates(numbers, low)
    values = {**measured}
    if measured or position.step is not None or position.epochs is not None:
        values.update(settings)
    if values or named or position.step is not None or position.epoch is not None:
        named = {**by_unit, **named}
    is_measured = bool(values or (named and bar is None))
    return LineValues({**values, **named}, position, is_measured, _find_total(numbers))


def _normalize(line: str) -> str:
    if "\x1b" in line:
        line = words_of.ESCAPES.sub("", line)
    line = line.lower() if line.isascii() else line.lower().translate(words_of.PUNCTUATION)
    row = words_of.TABLE_ROW.fullmatch(line)
    return f"{row.group(1)}: {row.group(2)}" if row else line


def _find_numbers(low: str) -> List[_Number]:
    found: List[_Number] = []
    end = 0
    for match in NUMBER.finditer(low):
        if len(found) == MAX_NUMBERS:
            break
        text, of, space, unit = match.groups()
        start = match.start()
        sign = low[start - 1 : start]
        if sign in SIGNS and not IN_A_WORD.match(low, start - 2):
            start, text = start - 1, sign + text
        elif IN_A_WORD.match(low, start - 1):
            continue
        label = _read_label(low[max(end, start - MAX_LABEL) : start])
        end = match.end() if of or (unit and not space) else match.end(1)
        if not of and (not unit or space) and GOES_ON.match(low, end):
            found.append(UNUSABLE)
            continue
        if unit and space and low[match.end() : match.end() + 2].lstrip()[:1] in (":", "="):
            unit = ""  # it is the label of the next number
        plain = text.replace(",", "")
        value = float(plain)
        total = int(of.replace(",", "")) if of else None
        is_count = plain.isdecimal() and value < MAX_RATE
        found.append(_Number(value, label, total, unit or "", bool(space), is_count))
    return found


@lru_cache(maxsize=MAX_CACHED)
def _read_label(gap: str) -> _Label:
    """Read the text before a number. The lines of a log have few different ones."""
    words, unit, joined = _split_label(gap)
    last = words[-1]
    metric = _metric_name(words, joined=joined)
    phrase = "_".join(words[-3:])
    position = last if last in words_of.STEPS else last.rpartition("/")[2]
    if " ".join(words) in words_of.TOTALS:
        position = "total"
    elif position in words_of.STEPS and (len(words) == 1 or words[-2] in words_of.STEP_WORDS):
        position = "step"
    elif position in words_of.EPOCHS:
        position = "epoch"
    else:
        position = "" if last else "nameless"
    return _Label(
        metric=metric,
        is_setting=metric.endswith(words_of.SETTINGS),
        rate="" if metric else _rate_name(phrase) or _rate_name(last),
        is_evaluation=any(kind in phrase for kind in words_of.EVALUATIONS),
        step_times=words_of.STEP_TIMES.get(" ".join(words[-4:]), ()),
        unit=unit,
        position=position,
        in_brackets=bool(IN_BRACKETS.fullmatch(gap)),
    )


def _split_label(gap: str) -> Tuple[List[str], str, bool]:
    """Return the words before a number, their unit in parentheses, and whether a colon or the like joins both."""
    label = gap.rstrip(words_of.JOINTS)
    if label[-1:] in ("-", ".", "/", "<", "~", "+", "*", "$", "#"):
        return ["?"], "", False
    wrapped = label
    for wrapper in words_of.WRAPPERS:
        if label.endswith(wrapper) and gap[len(label) :].startswith("("):
            label = label[: -len(wrapper)].rstrip(words_of.JOINTS)
    joints = gap[len(label) :]
    if "==" in joints or ("(" in joints and wrapped == label):
        return ["?"], "", False  # lines of a program: loss = (1 - x), if loss == 0, f1(3)
    unit = ""
    if label.endswith(")"):
        label, _, unit = label[:-1].rpartition("(")
    words = words_of.SEPARATORS.split(label.strip())[-1].lstrip(" -").rstrip()
    return words.split(" "), unit, any(mark in joints for mark in words_of.MARKS)


def _metric_name(words: Sequence[str], *, joined: bool) -> str:
    """Return the name of what a number measures; empty if it is a setting, or in no table."""
    if words[-1] in ("rate", "norm") and len(words) > 1:
        words = [*words[:-2], f"{words[-2]}_{words[-1]}"]
    last = words[-1]
    if not last or not _is_metric(last, joined=joined):
        return ""
    if any(word in words_of.NOT_MEASURED for word in words[-3:-1]):
        return ""
    before: List[str] = []
    for word in reversed(words[-3:-1] if "/" not in last else ()):
        if word in words_of.FILLERS or not WORD_BEFORE.fullmatch(word):
            break
        before.insert(0, word)
    name = _chinese_name(last) or "_".join([*before, ATOMS.sub("_", last)])
    name = re.sub(r"_(?:step|epoch)$", "", name).strip("_")
    return words_of.ALIASES.get(name, name)[:MAX_NAME]


def _is_metric(word: str, *, joined: bool) -> bool:
    atoms = [atom for atom in ATOMS.split(word) if atom]
    if not atoms or words_of.NOT_MEASURED.intersection(atoms):
        return False
    if "/" in word and any(_ends_with(part, words_of.PATH_METRICS) for part in word.split("/")):
        return True
    while len(atoms) > 1 and (atoms[-1] in words_of.TAILS or atoms[-1].isdecimal()):
        atoms.pop()
    known = words_of.METRICS | words_of.SHY_METRICS if joined else words_of.METRICS
    return _ends_with("_".join(atoms), known) or bool(_chinese_name(atoms[-1]))


def _ends_with(word: str, names: FrozenSet[str]) -> bool:
    last = word.rpartition("_")[2]
    if last.endswith("loss"):  # CELoss
        return True
    return last in names or last.rstrip("0123456789") in names or "_".join(word.split("_")[-2:]) in names


def _chinese_name(word: str) -> str:
    if word.isascii():
        return ""
    for text, name in words_of.CHINESE_METRICS.items():
        if word.endswith(text):
            return words_of.CHINESE_KINDS.get(word[: -len(text)][-2:], "") + name
    return ""


@lru_cache(maxsize=MAX_CACHED)
def _rate_name(text: str) -> str:
    if text in words_of.NAMED_RATES:
        return words_of.NAMED_RATES[text]
    match = words_of.RATE.fullmatch(text)
    unit = words_of.UNITS.get(match.group(1)) if match else None
    if not unit:
        return ""
    return f"{unit}_per_second" + ("_per_gpu" if words_of.PER_DEVICE.search(text) else "")


def _find_metrics(numbers: Sequence[_Number]) -> Tuple[Dict[str, float], Dict[str, float]]:
    """Return what was measured, and settings that are worth a curve beside it."""
    measured: Dict[str, float] = {}
    settings: Dict[str, float] = {}
    for number in numbers:
        value = _metric_value(number) if number.label.metric else None
        if value is not None:
            (settings if number.label.is_setting else measured).setdefault(number.label.metric, value)
    return measured, settings


def _metric_value(number: _Number) -> Optional[float]:
    if number.unit not in ("", "%") and not number.spaced:
        return None
    if number.of is None:
        return number.value
    # 9834/10000 is a share; of anything but an accuracy it means nothing.
    is_share = (
        any(word in number.label.metric for word in words_of.SHARES) and 0 <= number.value <= number.of > 0
    )
    return number.value / number.of if is_share else None


def _of_evaluation(name: str, kind: str) -> str:
    """Name a number of an evaluation so that it does not join those of the training."""
    return name if any(one in name for one in words_of.EVALUATIONS) else f"{kind}_{name}"[:MAX_NAME]


def _find_rates(numbers: Sequence[_Number], low: str) -> Tuple[Dict[str, float], Dict[str, float]]:
    """Return the rates that labels name, and those that only a unit names, as also other programs print them."""
    named: Dict[str, float] = {}
    by_unit: Dict[str, float] = {}
    for number in numbers:
        label = number.label
        if not 1 / MAX_RATE < number.value < MAX_RATE or number.of is not None or label.metric:
            continue
        if label.rate:
            rate = _rate_name(number.unit)
            factor = {"": 1.0, "k": 1e3, "m": 1e6}.get(number.unit, 1.0 if number.spaced or rate else 0.0)
            if factor and not label.is_evaluation:
                named.setdefault(rate or label.rate, number.value * factor)
        elif number.unit or label.unit or label.step_times:
            name, value = _rate_by_unit(number)
            if name:
                by_unit.setdefault(name, value)
    for name, beside in words_of.DEVICE_RATES:
        if name in named and beside in low:
            named[f"{name}_per_gpu"] = named.pop(name)
    return named, by_unit


def _rate_by_unit(number: _Number) -> Tuple[str, float]:
    took = words_of.STEP_TIME_UNITS.fullmatch(number.unit)
    if took:
        return words_of.STEP_RATE, 1 / (number.value * words_of.SECONDS[took.group(1)])
    unit = number.label.unit or number.unit
    if unit in number.label.step_times:
        return words_of.STEP_RATE, 1 / (number.value * words_of.SECONDS[unit])
    if number.unit == "/s":  # timm, open_clip
        return "samples_per_second", number.value
    name = _rate_name(number.unit) or _rate_name(number.label.unit)
    if not name and number.unit[:1] == "k":
        return _rate_name(number.unit[1:]), number.value * 1e3
    return name, number.value


def _find_position(numbers: Sequence[_Number], *, is_expected: bool) -> Position:
    """Return where the training is; [10/100] without a name counts if a position is expected, or with an epoch."""
    step = total = epoch = epochs = unnamed = of = None
    before = UNUSABLE
    for number in numbers:
        kind = {"步": "step", "轮": "epoch"}.get(number.unit, number.label.position)
        if kind == "epoch" and epoch is None and 0 <= number.value < MAX_RATE:
            epoch, epochs = number.value, number.of
        elif kind == "step" and step is None and number.is_count:
            step, total = int(number.value), number.of
        elif kind == "nameless" and unnamed is None and number.is_count and number.of is not None:
            unnamed, of = int(number.value), number.of
            if epoch is None and before.is_count and number.label.in_brackets:
                epoch = before.value
        before = number
    if step is None and unnamed is not None and (is_expected or epoch is not None):
        return Position(unnamed, of, epoch, epochs, within=epoch is not None)
    return Position(step, total, epoch, epochs)


def _find_total(numbers: Sequence[_Number]) -> Optional[int]:
    return next((int(one.value) for one in numbers if one.is_count and one.label.position == "total"), None)


class LineReader:
    """Reads the lines of one log in order: a table has its names above, Composer prints a step above its numbers."""

    def __init__(self) -> None:
        self._columns: List[str] = []
        self._heading = Position()
        self._in_traceback = False

    @property
    def in_table(self) -> bool:
        """Whether the next line may be a row, in which nothing is named."""
        return bool(self._columns)

    def read(self, line: str) -> LineValues:
        """Read the next line."""
        if self._columns:
            row = _read_row(self._columns, _normalize(line))
            if row is not None:
                return row
        part = words_of.TRACEBACK.match(line)
        self._in_traceback = bool(part and (part.group(1) or self._in_traceback))
        if self._in_traceback:
            return NOTHING
        self._columns = _read_header(line)
        if self._columns:
            return NOTHING
        found = read_line(line)
        if line[:1].isspace():
            lacks_position = found.measured and found.position == Position()
            return found._replace(position=self._heading) if lacks_position else found
        is_heading = not found.measured and line.rstrip()[-1:] in (":", "\uff1a")
        self._heading = found.position if is_heading else Position()
        return found


def _read_header(line: str) -> List[str]:
    """Return the columns of a table's head: epoch or step first, then what is measured; others have no name."""
    if "loss" not in line.lower() or not HEADER.fullmatch(line):
        return []
    words = line.lower().split()[:MAX_COLUMNS]
    places = words_of.EPOCHS | words_of.STEPS
    if words[0] not in places:
        return []
    return [word if word in places else _metric_name([word], joined=True) for word in words]


def _read_row(columns: Sequence[str], line: str) -> Optional[LineValues]:
    """Read a row; None if it does not belong to the table."""
    cells = line.split(None, MAX_COLUMNS)[: len(columns)]
    if len(cells) < len(columns):
        return None
    values: Dict[str, float] = {}
    position = Position()
    for name, cell in zip(columns, cells):
        first, _, of = cell.partition("/")
        total = int(of) if of.isdecimal() and len(of) < 13 else None
        is_position = first.isdecimal() and len(first) < 13
        if name in words_of.EPOCHS and is_position:
            position = position._replace(epoch=float(first), epochs=total)
        elif name in words_of.STEPS and is_position:
            position = position._replace(step=int(first), total=total)
        elif name and CELL.fullmatch(cell):
            values[name] = float(cell)
        elif name:
            return None
    return LineValues(values, position, measured=True)

"""The language of the command line: which one is chosen, and that nothing of the help stays English in Chinese."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from commands import run_command
from verbs_below import commands
from waiting import HANG

from clusterctl.cli.main import choose_language, refuse_unknown_language, root
from clusterctl.cli.main import run as main
from clusterctl.cli.options import COMPLETE_VARIABLE
from clusterctl.console.text import display_width, wrap_text
from clusterctl.errors import UsageError
from clusterctl.translation import language, language_of, use_language

CHINESE = re.compile(r"[\u4e00-\u9fff]")
# An example may stand without a comment.
COMMAND = re.compile(r"clusterctl .*|eval \"\$\(clusterctl .*")


@pytest.fixture
def chinese(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Speak Chinese, and English afterwards."""
    monkeypatch.setenv("CLUSTERCTL_LANG", "zh")
    yield
    use_language("en")


PATHS = [path for path, _ in commands(root)]


@pytest.mark.usefixtures("chinese")
@pytest.mark.parametrize("path", PATHS, ids=" ".join)
@pytest.mark.parametrize("width", [80, 120])
def test_help_in_chinese_has_no_english_line(
    path: tuple[str, ...], width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every text is Chinese, and no line is wider than the terminal, on which a character takes two columns."""
    monkeypatch.setenv("COLUMNS", str(width))
    assert main([*path, "--help"]) == 0
    shown = capsys.readouterr().out.splitlines()

    assert shown[0].startswith("用法：")
    assert [line for line in shown if display_width(line) > 80 and " " in line.strip()] == []
    assert [text for text in texts(path, shown) if not CHINESE.search(text)] == []


def texts(path: tuple[str, ...], shown: list[str]) -> Iterator[str]:
    """Give each paragraph, and each text of the second column with its further lines."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(shown[1:]))
    for paragraph in filter(str.strip, paragraphs):
        heading, _, rest = paragraph.partition("：\n")
        if not rest or heading.startswith(" "):
            yield paragraph
            continue
        yield heading
        entries = re.split(r"\n  (?=\S)", f"\n{rest}")[1:]
        for entry in entries:
            term, _, text = " ".join(entry.split("\n")).partition("  ")
            if text.strip():  # an example may be without a comment
                yield text
            else:
                assert COMMAND.fullmatch(term.strip()), (path, entry)


@pytest.mark.usefixtures("chinese")
def test_columns_of_chinese_help_are_straight(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The texts of one list begin at the same column."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["lab", "up", "--help"]) == 0
    lines = capsys.readouterr().out.split("选项：\n")[1].split("\n\n")[0].splitlines()
    starts = {len(line) - len(re.sub(r"^\s*(?:-\S.*?  +)?", "", line)) for line in lines}
    assert len(starts) == 1, lines


@pytest.mark.usefixtures("chinese")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lunch"], "没有命令 'lunch'；是不是 'launch'？"),
        (["lab", "list"], "没有命令 'lab list'；是不是 'lab status'？"),
        (["ps", "--jsn"], "没有选项 '--jsn'。是不是 '--json'？"),
        (["forward"], "缺少 PORT"),
        (["logs", "--tail"], "选项 '--tail' 需要 1 个值。"),
        (["logs", "--tail", "x"], "'--tail' 的值无效：'x' 不是行数"),
        (["logs", "--rank", "-1"], "-1 太小，最小值为 0"),
        (["logs", "--stream", "out"], "'--stream' 的值无效：可选值为 'stdout', 'stderr'，实际是 'out'。"),
        (["lab", "break", "gpu01", "fire"], "'HOW' 的值无效：可选值为 'power'"),
        (["ps", "x"], "是不是：clusterctl status x"),
        (["status", "x", "y"], "多余的参数（y）"),
        (["lab", "break", "gpu01"], "可选：power, nic-down, sshd"),
        (["lab", "down", "b"], "多余的参数：b"),
    ],
)
def test_wrong_words_are_answered_in_chinese(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ours and click's, with code and fix."""
    assert main(words) == 2
    error = capsys.readouterr().err
    assert said in error and ("CC-USE-001" in error or "CC-USE-092" in error)


@pytest.mark.parametrize("value", ["zh", "zh_CN", "zh-CN", "zh_CN.UTF-8", "ZH", "zh-Hans"])
def test_chinese_has_several_names(value: str) -> None:
    """As people and locales write it; our own variable goes before the locale."""
    assert language_of({"CLUSTERCTL_LANG": value, "LC_ALL": "en_US.UTF-8"}) == "zh"
    assert language_of({"LANG": value}) == "zh"


@pytest.mark.parametrize("value", ["en", "en_US", "en-GB", "en_US.UTF-8", "C", "C.UTF-8", "POSIX"])
def test_english_has_several_names(value: str) -> None:
    """So has the absence of a language."""
    assert language_of({"CLUSTERCTL_LANG": value, "LC_ALL": "zh_CN.UTF-8"}) == "en"


@pytest.mark.parametrize("value", ["fr", "zhuang", "chinese", "1"])
def test_another_language_is_refused(
    value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Our own variable has a wrong value: that is an error; a locale in French is none."""
    assert language_of({"LC_ALL": "fr_FR.UTF-8", "LANG": "zh_CN.UTF-8"}) == "en"
    monkeypatch.setenv("CLUSTERCTL_LANG", value)
    assert main(["--help"]) == 2
    assert f"CC-USE-093: CLUSTERCTL_LANG={value}: unknown language" in capsys.readouterr().err
    choose_language({"CLUSTERCTL_LANG": value, "LANG": "zh_CN.UTF-8"}, [])
    with pytest.raises(UsageError, match="不支持的语言"):
        refuse_unknown_language({"CLUSTERCTL_LANG": value})
    use_language("en")


def test_a_terminal_that_cannot_show_chinese_gets_english() -> None:
    """ASCII, or latin-1."""
    for encoding, chosen in (("ascii", "en"), ("latin-1", "en"), ("utf-8", "zh"), ("gb18030", "zh")):
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        choose_language({"CLUSTERCTL_LANG": "zh"}, [stream])
        assert language() == chosen
    use_language("en")


@pytest.mark.parametrize(
    ("value", "text"), [("zh", "持续显示任务的输出"), ("fr", "Follow a run until it ends")]
)
def test_completion_is_translated_and_never_an_error(value: str, text: str) -> None:
    """zsh and fish show what a verb is for; an unknown language must not spoil the line of the user."""
    completing = {COMPLETE_VARIABLE: "zsh_complete", "COMP_WORDS": "clusterctl att", "COMP_CWORD": "1"}
    done = run_command([], cwd=None, env={**os.environ, **completing, "CLUSTERCTL_LANG": value}, timeout=HANG)
    assert text in done.stdout and done.stderr == ""


@pytest.mark.usefixtures("chinese")
def test_json_stays_english(capsys: pytest.CaptureFixture[str]) -> None:
    """Programs read it."""
    assert main(["explain", "NET-1", "--json"]) == 0
    assert not CHINESE.search(capsys.readouterr().out)


@pytest.mark.usefixtures("chinese")
def test_commands_that_we_start_see_the_language_of_the_user_only() -> None:
    """click's texts are Chinese without a change to the environment, which programs that we start inherit."""
    before = dict(os.environ)
    assert main(["--help"]) == 0
    assert dict(os.environ) == before


def test_english_help_reads_no_catalogue() -> None:
    """It must come at once."""
    code = (
        "from clusterctl.cli.main import run\n"
        "assert run(['launch', '--help']) == 0\n"
        "from clusterctl import translation\n"
        "print(translation._catalogue.cache_info().misses)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0"


def test_lines_break_between_chinese_characters() -> None:
    """Not before a full stop or a closing bracket, not after an opening one, and not within a word."""
    text = "先检查所有节点（只读），再用 torchrun 执行一次 all_reduce。不写入任何内容。"
    for width in range(10, 50):
        lines = wrap_text(text, width)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
        assert max(map(display_width, lines)) <= max(width, len("all_reduce。") + 1)
        assert not [line for line in lines if line[0] in "，。）" or line[-1] == "（"]


def test_help_of_click_itself_is_translated() -> None:
    """Both languages in one process, one after the other: commands keep no text of the first."""
    shown = []
    for chosen in ("zh", "en", "zh"):
        choose_language({"CLUSTERCTL_LANG": chosen}, [])
        shown.append(CliRunner().invoke(root, ["--help"]).output)
    use_language("en")
    assert shown[0] == shown[2]
    assert "显示帮助并退出。" in shown[0] and "Show this message and exit." in shown[1]
    assert click.Context(root).get_help().startswith("Usage:")

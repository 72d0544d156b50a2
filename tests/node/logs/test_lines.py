"""Complete lines by offset, tails from the end, in bounded memory."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from clusterctl.node.logs import lines
from clusterctl.node.logs.lines import LineReader
from clusterctl.node.logs.reader import Grep, Log, filter_lines, in_time_order, tail_position


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """An empty log file."""
    path = tmp_path / "log"
    path.touch()
    return path


def append(path: Path, content: bytes) -> None:
    """Write at the end."""
    with path.open("ab") as sink:
        sink.write(content)


def test_only_complete_lines_until_the_end(log: Path) -> None:
    """A line without its end waits, and comes at last."""
    reader = LineReader(str(log))
    append(log, b"one\ntw")
    assert reader.read() == (0, b"one\n")
    assert reader.read() == (4, b"")
    append(log, b"o\nthree")
    assert reader.read() == (4, b"two\n")
    assert reader.read(last=True) == (8, b"three")
    assert reader.read(last=True) == (13, b"")


def test_a_missing_file_is_empty(log: Path) -> None:
    """It may come later."""
    reader = LineReader(f"{log}.later")
    assert reader.read() == (0, b"")


def test_a_truncated_or_replaced_file_is_read_again(log: Path) -> None:
    """Whatever a job does to its log, following goes on."""
    reader = LineReader(str(log))
    append(log, b"one\ntwo\n")
    reader.read()
    log.write_bytes(b"new\n")
    assert reader.read() == (0, b"new\n")
    other = log.with_name("other")
    other.write_bytes(b"replaced\n")
    other.rename(log)
    assert reader.read() == (0, b"replaced\n")


def test_a_line_that_never_ends_comes_in_pieces(log: Path) -> None:
    """Memory stays bounded, and not a byte is lost."""
    content = bytes(random.Random(1).choices(range(32, 127), k=3 * lines.PIECE + 7))
    append(log, content)
    reader = LineReader(str(log))
    start, piece = reader.read()
    assert (start, len(piece)) == (0, 3 * lines.PIECE)
    assert reader.read() == (3 * lines.PIECE, b"")
    assert piece + reader.read(last=True)[1] == content


def test_no_piece_breaks_a_character(log: Path) -> None:
    """A long line in any script; what is no UTF-8 is broken anywhere."""
    for text in (
        "a" + "\N{CJK UNIFIED IDEOGRAPH-4E2D}" * lines.PIECE,
        "ab" + "\N{GRINNING FACE}" * lines.PIECE,
    ):
        log.write_bytes(text.encode())
        reader, pieces = LineReader(str(log)), []
        while piece := reader.read(most=lines.PIECE)[1]:
            pieces.append(piece)
        pieces.append(reader.read(last=True)[1])
        assert "".join(map(bytes.decode, pieces)) == text
    assert lines.find_character_end(b"\x80" * 9, 8) == 8


def test_large_files_come_in_blocks(log: Path) -> None:
    """Every block ends with a line, and all of them make up the file."""
    content = b"".join(b"%d %s\n" % (number, b"x" * (number % 200)) for number in range(20000))
    append(log, content)
    reader, whole = LineReader(str(log)), b""
    while block := reader.read()[1]:
        assert block.endswith(b"\n") and len(block) <= lines.BLOCK
        whole += block
    assert whole == content


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"a", b"a\n", b"a\nb", b"a\n\nb\n", b"\n\n\n", b"long" * 40000 + b"\nx\n"]
)
@pytest.mark.parametrize("count", [0, 1, 2, 100])
@pytest.mark.parametrize("last", [True, False])
def test_tails_are_what_tail_prints(log: Path, content: bytes, count: int, last: bool) -> None:
    """Against a plain reading of the whole file."""
    append(log, content)
    found = content.splitlines(keepends=True)
    unfinished = b"" if last or not found or found[-1].endswith(b"\n") else found.pop()
    expected = b"".join(found[len(found) - count :] if count < len(found) else found) + unfinished

    assert content[tail_position(str(log), count, None, last) :] == expected


def test_tails_across_blocks(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Block borders fall anywhere: before, on and after newlines."""
    monkeypatch.setattr(lines, "BLOCK", 7)
    generator = random.Random(2)
    for _ in range(200):
        content = bytes(generator.choices(b"ab\n", k=generator.randrange(40)))
        log.write_bytes(content)
        whole = content.splitlines(keepends=True)
        for count in (1, 2, 5):
            assert content[tail_position(str(log), count, None, True) :] == b"".join(whole[-count:])


def test_the_tail_of_a_large_file_reads_its_end_only(log: Path) -> None:
    """A sparse file of 100 GB would take minutes otherwise."""
    with log.open("wb") as sink:
        sink.truncate(100 << 30)
        sink.seek(100 << 30)
        sink.write(b"\n" + b"line\n" * 1000)

    assert tail_position(str(log), 10, None, False) == (100 << 30) + 1 + 5 * 990


def test_grep_shows_where_each_hit_was() -> None:
    """Offsets are those of the file; of a block without a hit it is still known where to read on."""
    header: dict[str, object] = {}
    assert filter_lines(header, 100, b"a1\nb\na2\na3\nb\n", Grep("^a"), False) == b"a1\na2\na3\n"
    assert header == {"places": [100, 105, 108], "next": 113}
    assert filter_lines(header, 100, b"a1\n", Grep("c"), False) == b""
    assert header == {"places": [], "next": 103}


PATTERNS = (
    "b", "^b", "b$", "^$", r"\s", r"a\s*b", "[^a]b", "a.b", "(?i)AB", r"\bab\b", "(a|b)+$", r"b(?!a)", r"(?<!a)b",
    r"\Aa", r"b\Z", "a{2}", "(?:ab)+", r"(?P<x>a)(?P=x)", "é", r"a[^b]*$", r"\n", "", "a|^$", r".\b$", r"a\Bb",
)  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_searching_in_all_lines_at_once_finds_the_same(pattern: str) -> None:
    """Against each line by itself: an expression that reaches over a line's end must not hide or make a hit."""
    generator, grep = random.Random(pattern), Grep(pattern)
    for _ in range(300):
        content = "".join(
            generator.choices("aabb \n\nAé\r", [9, 9, 9, 9, 5, 5, 5, 3, 0.1, 0.1], k=40)
        ).encode()
        whole = content.splitlines(keepends=True) if b"\r" not in content else content.split(b"\n")
        expected = [line.strip(b"\n") for line in whole if grep.matches(line)]
        found = [content[begin:end].strip(b"\n") for begin, end in grep.find_hits(content)]
        if b"\r" in content and expected[-1:] == [b""] and content.endswith(b"\n"):
            expected.pop()  # what `split` finds behind the last newline is no line
        assert found == expected, content


def test_the_tail_of_hits(log: Path) -> None:
    """The last hits, however far back."""
    append(log, b"".join(b"%d\n" % number for number in range(100000)))
    position = tail_position(str(log), 2, Grep("777$"), False)
    assert log.read_bytes()[position : position + 6] == b"98777\n"


def test_a_bar_that_redraws_itself_is_not_read_again_and_again(log: Path) -> None:
    """Of a line that does not end for hours each look reads only what is new, and nothing of it is lost."""
    reader, bar = LineReader(str(log)), b""
    for number in range(100):
        append(log, b"\r%3d %%" % number)
        bar += b"\r%3d %%" % number
        assert reader.read() == (0, b"")
        assert reader._searched == len(bar)
    append(log, b"\nnext\n")
    assert reader.read() == (0, bar + b"\nnext\n")


def test_a_limit_ends_the_reading_however_long_the_file_becomes(log: Path) -> None:
    """Who does not follow wants what is there, not what comes while he reads."""
    append(log, b"one\ntwo\n")
    reader = LineReader(str(log))
    reader.limit = 8
    append(log, b"three\n")
    assert reader.read() == (0, b"one\ntwo\n")
    assert reader.read() == (8, b"")


def test_a_tail_ends_where_the_reading_does(log: Path) -> None:
    """However many lines are written between the two looks at the file."""
    append(log, b"one\ntwo\nthree\n")
    assert tail_position(str(log), 2, None, False, limit=8) == 0
    assert tail_position(str(log), 1, None, False, limit=9) == 4


@pytest.mark.parametrize("long", [b"x" * 40_000, b"\rbar" * 40_000, b"x" * (lines.PIECE * 2 - 6)])
@pytest.mark.parametrize("ended", [True, False])
def test_a_long_line_holds_nothing_up_in_the_order_of_time(tmp_path: Path, long: bytes, ended: bool) -> None:
    """Longer than a parcel: what comes after it comes as well, and the other logs."""
    content = {"a.log": b"first\n" + long + b"\nlast\n" + long, "b.log": b"other\n" * 9}
    logs = []
    for rank, (name, text) in enumerate(content.items()):
        (tmp_path / name).write_bytes(text)
        logs.append(Log(str(tmp_path), name, rank, "stdout", 1))
        logs[-1].start({"times": True})
        logs[-1].reader.limit = logs[-1].initial_size
    sent: dict[str, bytes] = {}

    for chunk in in_time_order(logs, None, lambda _: ended, lambda: None):
        sent[chunk.header["log"]] = sent.get(chunk.header["log"], b"") + chunk.body
    whole = b"first\n" + long + b"\nlast\n"
    assert sent["b.log"] == content["b.log"]
    assert sent["a.log"] == content["a.log"] if ended else sent["a.log"].startswith(whole)

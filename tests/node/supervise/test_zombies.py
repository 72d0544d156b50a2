"""Which rank has failed and does not exit: by its last words and its stacks."""

from __future__ import annotations

import pytest

from clusterctl.node.diagnose.stacks import is_script_over
from clusterctl.node.supervise.zombies import last_exception

pytestmark = pytest.mark.unit

OTHER = (
    'Thread (most recent call first):\n  File "t.py", line 3 in wait\n  File "t.py", line 9 in <module>\n\n'
)
SHUTDOWN = (
    'Thread (most recent call first):\n  File "/usr/lib/python3.11/threading.py", line 1590 in _shutdown\n'
)
IN_SCRIPT = (
    'Thread (most recent call first):\n  File "t.py", line 3 in f\n  File "t.py", line 9 in <module>\n'
)
DEEP = "Thread (most recent call first):\n" + 100 * '  File "t.py", line 3 in f\n' + "  ...\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 3, in f\n[rank1]: ValueError: no\n'


@pytest.mark.parametrize(
    ("stacks", "over"),
    [
        (SHUTDOWN, True),
        (OTHER + SHUTDOWN, True),
        ("Thread (most recent call first):\n  <no Python frame>\n", True),
        (IN_SCRIPT, False),
        (DEEP, False),
        ("", False),
        ("Thread (most recent call first):\n", False),
    ],
)
def test_the_script_is_over_once_no_module_is_in_the_main_thread(stacks: str, over: bool) -> None:
    """The main thread is the last; of a deep stack the outermost frames are left out, so nothing is known."""
    assert is_script_over(stacks) is over


def test_the_last_words_are_an_exception() -> None:
    """Ordinary lines are none; a traceback is one by its last line."""
    assert last_exception(TRACEBACK) == "ValueError: no"
    assert last_exception("step 3\nsaved\n") == ""

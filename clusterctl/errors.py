"""Every error that clusterctl raises on purpose.

ClusterctlError                 exit 1   something failed; carries code, evidence and the way out
├── UsageError                  exit 2   wrong words on the command line
│   └── SpecError               exit 2   an inventory or job file is wrong; carries every Issue at once
├── ChecksFailed                exit 3   a finding of severity error; nothing was started
│   └── NodesBusy                        another run holds the GPUs or nodes that this one needs
├── ConnectError                exit 4   a node could not be reached or would not let us in
│   ├── Unreachable                      no TCP connection, no SSH banner, or a proxy command that died
│   │   └── ServerBusy                   the server hung up before login; another try may succeed
│   ├── ConnectTimeout                   a step took longer than its limit
│   ├── AuthenticationFailed             no key was accepted
│   └── HostKeyError                     the host key is unknown, changed or revoked
├── ConnectionLost              exit 4   an open connection ended or fell silent
├── NodeError                   exit 1   a step failed on a node that was reached
│   ├── NoInterpreter                    the configured Python is missing or too old
│   ├── SyncError                        the code did not arrive as it is here
│   └── StartError                       guardian, agent or gate did not come up
├── LocalSystemError            exit 1   this machine refused a file or our output: disk full, no permission
├── LabError                    exit 2   the lab cannot run on this machine, or not as asked
└── InternalError               exit 70  a bug of ours
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from clusterctl.codes.lookup import REPORTED, word
from clusterctl.translation import english_of


class ClusterctlError(Exception):
    """The base of all errors shown to a user: a code, and the case of it in the table `clusterctl/codes`.

    `facts` fill the placeholders of the case's message and fix.
    """

    exit_code = 1

    def __init__(
        self, code: str, case: str = "", /, *, node: str = "", evidence: str = "", **facts: object
    ) -> None:
        self.message, self.fix = word(code, case, facts)
        super().__init__(self.message)
        self.code = code
        self.node = node
        self.evidence = evidence
        self.in_document = False  # whether a line of JSON on stdout reports it already

    def __str__(self) -> str:
        return self.message

    @property
    def english(self) -> str:
        """The message in English, for records and for what is sent to nodes or services."""
        return english_of(self.message)


class UsageError(ClusterctlError):
    """The command line asks for something that does not exist."""

    exit_code = 2


@dataclass(frozen=True, order=True)
class Location:
    """A position in a file; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Issue:
    """One thing wrong in an inventory or job file."""

    code: str
    message: str
    location: Location | None
    fix: str = ""

    @classmethod
    def of(cls, code: str, case: str, location: Location | None, /, **facts: object) -> Issue:
        """Make an issue of a case in the table of codes; `facts` fill its placeholders."""
        message, fix = word(code, case, facts)
        return cls(code, message, location, fix)


class SpecError(UsageError):
    """An inventory or job file is wrong; holds every issue found, in the order of the file.

    `texts` are the files by name, as far as their lines are to be shown.
    """

    def __init__(self, issues: Iterable[Issue]) -> None:
        self.issues = tuple(issues)
        self.texts: dict[str, str] = {}
        first_issue = self.issues[0]
        super().__init__(first_issue.code, REPORTED, message=first_issue.message)
        self.fix = first_issue.fix


class ChecksFailed(ClusterctlError):
    """The checks found errors that prevent a launch."""

    exit_code = 3


class NodesBusy(ChecksFailed):
    """Another run holds the GPUs or nodes that this one needs."""


class ConnectError(ClusterctlError):
    """A node could not be reached or would not let us in."""

    exit_code = 4


class Unreachable(ConnectError):
    """No TCP connection, no SSH banner, or a proxy command that ended."""


class ServerBusy(Unreachable):
    """The server hung up before the login, as it does when it has too many under way."""


class ConnectTimeout(ConnectError):
    """A step of connecting or asking took longer than its limit."""


class AuthenticationFailed(ConnectError):
    """The node accepted none of the keys offered."""


class HostKeyError(ConnectError):
    """The node's host key is unknown, changed or revoked."""


class ConnectionLost(ClusterctlError):
    """An open connection ended or fell silent."""

    exit_code = 4


class NodeError(ClusterctlError):
    """A step failed on a node that was reached."""


class NoInterpreter(NodeError):
    """The configured Python is missing on the node, or too old."""


class SyncError(NodeError):
    """The code on the node is not the code that is here."""


class StartError(NodeError):
    """Guardian, agent or gate did not come up on the node."""


class LocalSystemError(ClusterctlError):
    """This machine's system refused a file or our output."""


class LabError(ClusterctlError):
    """The lab cannot run on this machine, or not as asked."""

    exit_code = 2


class InternalError(ClusterctlError):
    """A bug of ours."""

    exit_code = 70


class InvalidValueError(ValueError):
    """A text that is not what its key wants; the message of the case follows the key's name and a colon."""

    def __init__(self, code: str, case: str = "", /, **facts: object) -> None:
        self.message, self.fix = word(code, case, facts)
        super().__init__(self.message)
        self.code = code

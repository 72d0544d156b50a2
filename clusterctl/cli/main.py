"""The command `clusterctl`: finds the verb, runs it, and turns every ending into an exit code."""

from __future__ import annotations

import gc
import importlib
import io
import itertools
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TextIO

import click

from clusterctl.cli.context.settings import Settings
from clusterctl.cli.help import (
    CALLABLE_VERBS,
    OTHER_WORDS,
    TYPED_KEY,
    VERB_GROUPS,
    VERBS,
    TranslatedHelp,
    WideFormatter,
    describe_unknown_verb,
)
from clusterctl.cli.options import COMPLETE_VARIABLE, shared_options
from clusterctl.console.errors import ERRORS, show_error, show_usage_error
from clusterctl.errors import ClusterctlError, LocalSystemError, UsageError
from clusterctl.interrupts import INTERRUPTS, announce_interrupted
from clusterctl.node_texts import describe_system_error
from clusterctl.specs.text import command_line
from clusterctl.translation import (
    VARIABLE,
    language,
    language_of,
    ngettext,
    parse_language,
    to_translate,
    tr,
    use_language,
)


class NamedContext(click.Context):
    """A context that names its command in errors; click names none where an option lacks its value."""

    def make_formatter(self) -> click.HelpFormatter:
        """Lay out Chinese by columns."""
        if language() == "en":
            return super().make_formatter()
        return WideFormatter(width=self.terminal_width, max_width=self.max_content_width)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        tb: TracebackType | None,
    ) -> bool | None:
        if isinstance(exc_value, click.UsageError) and exc_value.ctx is None:
            exc_value.ctx = self
        return super().__exit__(exc_type, exc_value, tb)


def _name_in_errors(command: click.Command) -> None:
    command.context_class = NamedContext
    for one in getattr(command, "commands", {}).values():
        _name_in_errors(one)


class Verbs(TranslatedHelp, click.Group):
    """A group whose commands are imported only when they are called, so that `--help` is quick."""

    context_class = NamedContext

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Name the verbs, in the order in which a newcomer needs them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - the same
        """Import a verb's module and give its command of the same name."""
        if cmd_name not in CALLABLE_VERBS:
            return None
        module = importlib.import_module(f"clusterctl.cli.commands.{CALLABLE_VERBS[cmd_name][0]}")
        INTERRUPTS.check()  # the modules of a verb take longest before its first wait
        # `help` would hide Python's own function
        command: click.Command = getattr(module, cmd_name, None) or getattr(module, f"{cmd_name}_")
        _name_in_errors(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest verb when one is misspelled; completion has nothing to complete then."""
        if args and args[0] not in CALLABLE_VERBS and not ctx.resilient_parsing:
            raise click.UsageError(_describe_unknown(args), ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - the same
        """List the verbs by group without importing them."""
        width = max(map(len, VERBS))
        for title, verbs in VERB_GROUPS.items():
            with formatter.section(tr(title)):
                formatter.write_dl([(name.ljust(width), tr(line)) for name, (_, line) in verbs.items()])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the verbs."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def _describe_unknown(words: Sequence[str]) -> str:
    """Name the verb that an unknown word stands for."""
    word, *others = words
    if word in OTHER_WORDS["help"] and others and others[0] in VERBS:
        return tr("no verb {word!r}; did you mean {meant!r}?", word=word, meant=f"help {others[0]}")
    return describe_unknown_verb(word, VERBS, OTHER_WORDS)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="clusterctl", prog_name="clusterctl")
@shared_options
def root(settings: Settings) -> None:
    """Train PyTorch models on machines that you reach by SSH.

    Not the Cluster API's clusterctl; also installed as `cctl`.
    """


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code (0 to 5, 70, or 128 and the number of a signal)."""
    _open_streams()
    INTERRUPTS.install()
    code = INTERRUPTS.finish(run(argv))
    gc.freeze()  # else Python looks through all objects again before it leaves: a tenth of a verb's processor time
    sys.exit(code)


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code."""
    as_json = _asks_for_json(sys.argv[1:] if argv is None else argv)
    code = _run(argv, as_json=as_json)
    if as_json and code and code < INTERRUPTED:
        from clusterctl.console.documents.output import write_failure

        try:
            write_failure()
        except OSError:  # nothing reads it
            _discard_output()
    return code


INTERRUPTED = 128  # and more: by a signal


def _asks_for_json(words: Sequence[str]) -> bool:
    """Return whether a command line asks for JSON; what stands behind `--` is for another program."""
    return "--json" in itertools.takewhile(lambda word: word != "--", words)


def _run(argv: Sequence[str] | None, *, as_json: bool) -> int:
    """Run it and show what goes wrong."""
    ERRORS.clear()
    try:
        with INTERRUPTS.leaving(announce_interrupted):
            return _invoke(argv, as_json=as_json)
    except KeyboardInterrupt:
        return INTERRUPTS.exit_code
    except click.Abort:  # the end of the input at a prompt
        announce_interrupted()
        return INTERRUPTS.exit_code
    except (BrokenPipeError, SystemExit):  # click turns the first into the second
        _discard_output()
        return 0  # the reader closed the pipe, as `head` does
    except click.UsageError as error:
        return _report_usage_error(error)
    except Exception as error:  # the last line of defence: a traceback is never shown to a user
        return _report_error(_explain(error))


def _invoke(argv: Sequence[str] | None, *, as_json: bool) -> int:
    _escape_unprintable()
    choose_language({VARIABLE: "en"} if as_json else os.environ, (sys.stdout, sys.stderr))
    if COMPLETE_VARIABLE not in os.environ:  # an error between two keys of the user would only spoil the line
        refuse_unknown_language(os.environ)
    try:
        code = root.main(
            args=list(argv) if argv is not None else None,
            complete_var=COMPLETE_VARIABLE,
            standalone_mode=False,
        )
    except click.Abort as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        raise
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    return code if isinstance(code, int) else 0


def _open_streams() -> None:
    """Open closed standard streams on /dev/null, before another file gets their numbers."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # the lowest free number is taken
        pass
    os.close(number)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115 - stays open


def _escape_unprintable() -> None:
    """Show characters that the locale cannot as escapes; a log line must not end the command that shows it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _explain(error: Exception) -> ClusterctlError:
    if isinstance(error, ClusterctlError):
        return error
    from clusterctl.cli.context.nodes import as_bug

    return _system_refusal(error) if isinstance(error, OSError) else as_bug(error)


def _report_error(error: ClusterctlError) -> int:
    from clusterctl.cli.context.nodes import (
        write_bug_report,
    )  # which takes as long to import as all that `--help` needs

    show_error(write_bug_report(error))
    ERRORS.ending = error
    return error.exit_code


def _system_refusal(error: OSError) -> ClusterctlError:
    """Report a full disk or a missing permission with the system's reason: it is no bug of clusterctl."""
    target = error.filename or _describe_failed_output()
    _discard_output()
    no_folder = isinstance(error, (FileNotFoundError, NotADirectoryError))
    case = "no-folder" if no_folder else ""
    return LocalSystemError("CC-USE-008", case, target=target, reason=describe_system_error(error))


def _describe_failed_output() -> str:
    """Name what could not be written, where the system's error names no file."""
    try:
        sys.stdout.flush()
    except OSError:
        return tr("standard output")
    return tr("a file on this machine")


def _report_usage_error(error: click.UsageError) -> int:
    if error.__class__.__name__ == "NoArgsIsHelpError":  # a group without a verb: its help is the answer
        click.echo(error.format_message(), err=True)
        return 2
    path = error.ctx.command_path if error.ctx else "clusterctl"
    program = (
        _FORWARDS_ARGUMENTS_TO.get(path.rpartition(" ")[2]) if isinstance(error, click.NoSuchOption) else None
    )
    forwarded = _forward_option(error, path) if path.endswith(" launch") else ""
    # an option of the script: none of ours was meant
    message = error.message if forwarded else error.format_message()
    show_usage_error(_on_one_line(message), path, tr(program) if program else "", forwarded)
    ERRORS.ending = ERRORS.shown[-1]
    return 2


def _forward_option(error: click.UsageError, path: str) -> str:
    """Write the command with an unknown option, and its value, behind `--`."""
    typed: Sequence[str] = error.ctx.meta.get(TYPED_KEY, ()) if error.ctx else ()
    option = error.option_name if isinstance(error, click.NoSuchOption) else ""
    index = next((at for at, word in enumerate(typed) if word.partition("=")[0] == option), None)
    if index is None:
        return ""
    has_value = "=" not in typed[index] and index + 1 < len(typed) and not typed[index + 1].startswith("-")
    end = index + 1 + has_value
    kept, behind = [*typed[:index], *typed[end:]], list(typed[index:end])
    return command_line(*kept, *([] if "--" in kept else ["--"]), *behind, command=path)


def _on_one_line(message: str) -> str:
    """Remove the line breaks and tabs of click's lists; in Chinese also the space and the full stop that click adds."""
    text = " ".join(message.split())
    return text if language() == "en" else re.sub(r"(?<=[。：？]) |(?<=')\.$", "", text)  # noqa: RUF001 - Chinese signs


_FORWARDS_ARGUMENTS_TO = {
    "exec": to_translate("command"),
    "launch": to_translate("script"),
    "ssh": to_translate("command"),
}  # verbs that pass words on, and to what


def _discard_output() -> None:
    """Keep Python from writing at its end what could not be written before."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def choose_language(environment: Mapping[str, str], streams: Iterable[TextIO]) -> None:
    """Use the language that the environment asks for, if all streams can show it."""
    chosen = language_of(environment)
    use_language(chosen if all(map(_can_show_chinese, streams)) else "en")
    if chosen == "zh":
        _translate_click()


def refuse_unknown_language(environment: Mapping[str, str]) -> None:
    """Raise UsageError if our own variable names a language that we do not have."""
    asked = environment.get(VARIABLE, "")
    if asked and parse_language(asked) is None:
        raise UsageError("CC-USE-093", value=asked)


def _can_show_chinese(stream: TextIO) -> bool:
    try:
        "中文".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _translate_click() -> None:
    """Set our functions in click's modules in place of gettext's, which look at LANG only and not in our catalogue.

    The alternative, LANGUAGE in our own environment and a text domain, would reach every program that we start.
    The texts of `click.decorators` are kept by commands, which outlive a change of language: see `TranslatedHelp`.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("click.") and name != "click.decorators":
            for attribute, function in (("_", tr), ("ngettext", ngettext)):
                if hasattr(module, attribute):
                    setattr(module, attribute, function)

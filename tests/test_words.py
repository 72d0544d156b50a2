"""Names in the code are the usual words of the field: none of the words below, which each need an explanation."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from package import Module, modules

# Nowhere in a name, with the word that says it: CONTRIBUTING, "Names".
BANNED = {
    "afterwards": "after_hook",
    "arrival": "receiver",
    "ballast": "disk_reserve",
    "beacon": "shared_home_probe",
    "bell": "wakeup",
    "blame": "root_cause, reason",
    "born": "started",
    "bring": "fetch, download",
    "bringer": "fetching_node",
    "chore": "helper_process",
    "circle": "failover, cycle",
    "conceive": "fork",
    "cord": "wakeup_event",
    "counted": "plural",
    "course": "roster",
    "departing": "startup",
    "departure": "startup",
    "desert": "leave",
    "door": "listener",
    "doorway": "key_installer",
    "examine": "validate",
    "farewell": "final_grace",
    "foreign": "imported",
    "freight": "inputs",
    "furnish": "mount_files",
    "giver": "provider",
    "going": "running, started",
    "granted": "applied",
    "guest": "pending_peer",
    "hear": "receive, read",
    "heir": "successor",
    "insist": "retry",
    "keyring": "identities",
    "knot": "time_mark",
    "landing": "target_dir",
    "lasting": "restartable",
    "leaf": "scalar",
    "learn": "receive, read",
    "leash": "session",
    "logbook": "recorder",
    "look": "read, scan, check",
    "lose": "mark_lost, disconnect",
    "manners": "policy",
    "meeting": "handshake, address",
    "mend": "fix, repair",
    "nobody": "what it is",
    "obey": "on_order",
    "onlooker": "reader",
    "parcel": "chunk",
    "parting": "disconnect_message",
    "patience": "timeouts",
    "place": "index, offset, path, address",
    "proving": "preflight",
    "remedy": "fix",
    "say": "report, print, write",
    "seat": "slot",
    "sieve": "filter",
    "situation": "context",
    "somebody": "what it is",
    "speak": "send, report",
    "standing": "state",
    "story": "history",
    "stranger": "unknown_peer",
    "surroundings": "environment",
    "taker": "receiver, member",
    "tell": "report, notify, send",
    "trunk": "transport",
    "voice": "heartbeat, last_line",
    "want": "need, request, selected",
    "weigh": "weight_of, grade",
    "went": "started",
    "whisper": "report",
    "whoever": "what it is",
    "wish": "request, options, policy",
    "worry": "pending_failure",
}
# Other forms of one that is irregular; the regular ones are found by their endings.
FORMS = {
    "brought": "bring",
    "heard": "hear",
    "learnt": "learn",
    "said": "say",
    "spoke": "speak",
    "spoken": "speak",
    "stories": "story",
    "told": "tell",
    "wishes": "wish",
}
ENDINGS = ("", "s", "ed", "ing", "d")

# Not as the verb of a function: too general, or said of people.
VERBS = {
    *(
        "ask",
        "bear",
        "become",
        "boil",
        "come",
        "do",
        "end",
        "give",
        "go",
        "hang",
        "heed",
        "note",
        "put",
        "see",
    ),
    *("take", "turn"),
}

ALLOWED = {  # keys of JSON that nodes or we send, each the name of a field; by module
    ("clusterctl/console/documents/runs.py", "place"): "of an error document: a node, or file and line",
}


MESSAGES = "clusterctl/protocol/messages/"  # whose attributes are keys on the network and in files, and stay


def words_of(name: str) -> list[str]:
    """Split a name in snake_case or CamelCase."""
    split = re.sub(r"([a-z0-9])([A-Z])|([A-Z]+)(?=[A-Z][a-z])", r"\1\3_\2", name)
    return [word for word in split.lower().split("_") if word]


def banned_word(word: str) -> str:
    """Return the banned word that a word is a form of; empty if none."""
    stems = (word[: len(word) - len(ending)] for ending in ENDINGS if word.endswith(ending))
    return FORMS.get(word, "") or next((stem for stem in stems if stem in BANNED), "")


def names(module: Module) -> Iterator[tuple[str, bool, int]]:
    """Yield the name of the module and of all classes, functions, parameters and attributes, with its line.

    The second value is whether it is a function's.
    """
    yield module.path.stem, False, 1
    for node in module.nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, True, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, False, node.lineno
        elif isinstance(node, ast.ClassDef):
            yield node.name, False, node.lineno
            if not module.path.as_posix().startswith(MESSAGES):
                yield from ((target.id, False, target.lineno) for target in _class_attributes(node))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, False, node.lineno


def _class_attributes(node: ast.ClassDef) -> Iterator[ast.Name]:
    for statement in node.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (target for target in targets if isinstance(target, ast.Name))


def breaches(module: Module) -> Iterator[str]:
    """Name what a module calls by a banned word, and the usual word for it."""
    for name, is_function, line in names(module):
        words = words_of(name)
        for word in filter(None, map(banned_word, words)):
            if (module.path.as_posix(), name) not in ALLOWED:
                yield f"{module.path}:{line}: {name}: not `{word}`, rather {BANNED[word]}"
        if is_function and words[:1] and words[0] in VERBS:
            yield f"{module.path}:{line}: {name}(): `{words[0]}` promises nothing"


def test_names_are_the_fields_own() -> None:
    """No name needs the private vocabulary of this project."""
    assert [breach for module in modules() for breach in breaches(module)] == []


def test_what_is_allowed_is_needed() -> None:
    """An exception goes when its name has gone."""
    used = {(module.path.as_posix(), name) for module in modules() for name, _, _ in names(module)}
    assert ALLOWED.keys() <= used


# Not in docstrings and comments: what people do, said of programs; and old or private words.
PROSE = re.compile(
    r"(?<!~)\b(told|tells?|shall|anew|in vain|whoever|bears?|mends?|somebody|nobody|hears?|heard|speaks?|spoke|aloud"
    r"|brought|brings?|says|said|vouch|vouches|goodbye)\b",
    re.IGNORECASE,
)


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments and docstrings of a module, each with its line."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (
            token.type == tokenize.STRING and token.string.startswith('"""')
        ):
            yield token.start[0], token.string


OPENINGS = (
    "Give",
    "Let",
    "Say",
    "Tell",
    "Be",
    "Who",
    "Usage",
)  # the verb is what a function does: Return, Write, Start


def openings(module: Module) -> Iterator[str]:
    """Name the docstrings that begin with a word that does not describe what code does."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    for node in module.nodes:
        text = ast.get_docstring(node) if isinstance(node, kinds) else None
        if text and text.split(None, 1)[0] in OPENINGS:
            yield f"{module.path}:{node.body[0].lineno}: {text[:60]}"


def test_docstrings_begin_with_what_is_done() -> None:
    """In the words of the standard library, so that a reader need not translate them."""
    assert [found for module in modules() for found in openings(module)] == []


def test_docstrings_and_comments_are_plain() -> None:
    """A program reports, sends and reads."""
    found = [
        f"{module.path}:{line}: {match[0]}"
        for module in modules()
        if PROSE.search(module.text)  # before the tokens, which are most of the work
        for line, text in prose(module.text)
        for match in PROSE.finditer(text)
    ]
    assert found == []


LIMITS = re.compile(r"(?:^|_)(?:MOST|LONGEST|LARGEST|HIGHEST|LEAST|SHORTEST|SMALLEST|LOWEST|FEWEST)(?:_|$)")


def limits(module: Module) -> Iterator[str]:
    """Name the constants that bound something and are not called MAX_ or MIN_."""
    for node in module.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and LIMITS.search(node.id):
            yield f"{module.path}:{node.lineno}: {node.id}"


def test_limits_are_max_and_min() -> None:
    """The field has these two words; what is bounded is in the name, its unit in the name or the comment."""
    assert [found for module in modules() for found in limits(module)] == []

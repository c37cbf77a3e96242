"""What a profile shows: nodes by scope or by input as a tree, or ops as a list, with numbers added up.

A node is counted if a type of it matches `account_type_regexes`.  Totals are those of all counted nodes below, or, with
`account_displayed_op_only`, of those that are shown.  Trees may be deep, as graphs are, so nothing here calls itself.
Next to read: `report.py` for the text, `messages.py` for the result.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import field

from aexec.compat.v1.running.profiler.options import COLUMNS, Options, matches
from aexec.compat.v1.running.profiler.profiled_nodes import ProfiledNode
from aexec.framework.late_dataclass import dataclass

__all__ = ["ROOT", "Entry", "by_inputs", "by_op", "by_scope", "preorder"]

ROOT = "_TFProfRoot"
# The type of a part of names which is no node itself.
_SCOPE = "_kTFScopeParent"
# Columns whose minimum the total of an entry is to reach, not its own number: in a tree, and in a list of ops.
_TOTALS = {name for name in COLUMNS if name.endswith(("bytes", "micros"))}
_TOTALS_OF_OPS = _TOTALS | {"float_ops", "params"}


@dataclass(slots=True, eq=False)
class Entry:
    """A node, scope or op among those of a profile.

    Attributes:
        own, total: its numbers, and those with what is below it.
        counted: whether a type of it is counted.
        children: what is below it; after `_shown` only what is shown.
        nodes: of an op its nodes; of a node itself; none of a scope.
    """

    name: str
    own: Counter[str]
    total: Counter[str]
    counted: bool
    children: list[Entry] = field(default_factory=list)
    nodes: Sequence[ProfiledNode] = ()

    @property
    def types(self) -> list[str]:
        """The types of all its nodes."""
        return list(dict.fromkeys(kind for node in self.nodes for kind in node.types)) or [_SCOPE]


def preorder(root: Entry) -> Iterator[tuple[int, Entry]]:
    """Each entry after the one above it, with its depth; that of the root is 1."""
    rest = [(1, root)]
    while rest:
        depth, entry = rest.pop()
        yield depth, entry
        rest += ((depth + 1, child) for child in reversed(entry.children))


def by_scope(nodes: Iterable[ProfiledNode], options: Options) -> Entry:
    """The tree of the nodes' names."""
    entries = {"": _root()} | {node.name: _entry(node, options, definition_count=1) for node in nodes}
    for name in [*entries][1:]:
        while name:
            scope, _, _ = name.rpartition("/")
            known = scope in entries
            if not known:
                counted = matches(options.account, [_SCOPE])
                entries[scope] = Entry(scope, Counter(definition_count=1), Counter(), counted)
            entries[scope].children.append(entries[name])
            name = "" if known else scope
    return _shown(entries[""], options, keep_scopes=True)


def by_inputs(nodes: Sequence[ProfiledNode], options: Options) -> Entry:
    """The tree of what each node needs, from those that none needs; each node is once in it."""
    entries = {node.name: _entry(node, options) for node in nodes}
    needed = {name for node in nodes for name in node.inputs}
    ends = sorted(name for name in entries if name not in needed)
    root, placed = _root(), set()
    rest = [(root, name) for name in reversed([*ends, *sorted(needed)])]  # what is only in loops comes last
    while rest:
        above, name = rest.pop()
        if name in placed or name not in entries:
            continue
        placed.add(name)
        above.children.append(entries[name])
        rest += ((entries[name], below) for below in reversed(entries[name].nodes[0].inputs))
    return _shown(root, options, keep_scopes=False)


def by_op(nodes: Iterable[ProfiledNode], options: Options) -> Entry:
    """The ops as a chain: below each is the one that comes next, so its total is that of the rest of the list."""
    groups: dict[str, list[ProfiledNode]] = defaultdict(list)
    for node in nodes:
        if matches(options.account, node.types):
            groups[node.op].append(node)
    listed = [
        Entry(op, sum((node.numbers for node in group), Counter()), Counter(), True, nodes=group)
        for op, group in sorted(groups.items())
    ]
    if (column := COLUMNS.get(options.order_by)) is not None:
        listed.sort(key=lambda entry: -entry.own[column])
    whole = _chained(listed)
    seen = [entry for entry in _begun(listed, options) if _is_shown(entry, options, _TOTALS_OF_OPS)][
        : options.max_depth + 1
    ]
    root = _root()
    root.total = _chained(seen) if options.displayed_only else whole
    for above, below in zip([root, *seen], seen, strict=False):
        above.children = [below]
    return root


def _chained(entries: Sequence[Entry]) -> Counter[str]:
    """Set totals to those of the rest of the list; return that of all."""
    total: Counter[str] = Counter()
    for entry in reversed(entries):
        total = entry.total = total + entry.own
    return total


def _begun(entries: list[Entry], options: Options) -> list[Entry]:
    """The list from the first op with which it is to begin."""
    first = (index for index, entry in enumerate(entries) if matches(options.start, [entry.name]))
    return entries[next(first, len(entries)) :]


def _root() -> Entry:
    return Entry(ROOT, Counter(definition_count=1), Counter(), False)


def _entry(node: ProfiledNode, options: Options, **uncounted: int) -> Entry:
    """The entry of a node, whose own numbers are others if it is not counted."""
    counted = matches(options.account, node.types)
    return Entry(node.name, node.numbers if counted else Counter(uncounted), Counter(), counted, nodes=[node])


def _shown(root: Entry, options: Options, keep_scopes: bool) -> Entry:
    """Add up a tree, then leave out what is not shown; what is shown below it takes its place.

    Args:
        keep_scopes: whether an entry that is not counted is shown if something below it is.
    """
    _add_up(root)
    root.children = _starts(root, options)
    shown: dict[Entry, list[Entry]] = {}
    for depth, entry in reversed(list(preorder(root))):
        below = _ordered((kept for child in entry.children for kept in shown[child]), options)
        if matches(options.trim, [entry.name]):
            below = []
        if depth > options.max_depth and entry is not root:
            shown[entry] = []
        elif entry is root or (_is_shown(entry, options, _TOTALS) and (entry.counted or (keep_scopes and below))):
            entry.children = below
            if options.displayed_only:
                entry.total = sum((kept.total for kept in below), entry.own)
            shown[entry] = [entry]
        else:
            shown[entry] = below
    return root


def _add_up(root: Entry) -> None:
    for _, entry in reversed(list(preorder(root))):
        below = sum((child.total for child in entry.children), Counter())
        is_part = entry.counted or (below and entry is not root)
        entry.total = below + entry.own if is_part else below


def _starts(root: Entry, options: Options) -> list[Entry]:
    """The uppermost entries with which trees are to begin."""
    found, rest = [], root.children[::-1]
    while rest:
        entry = rest.pop()
        if matches(options.start, [entry.name]):
            found.append(entry)
        else:
            rest += reversed(entry.children)
    return found


def _ordered(entries: Iterable[Entry], options: Options) -> list[Entry]:
    """By name; or by the totals of a column, the largest first."""
    by_name = sorted(entries, key=lambda entry: entry.name)
    column = COLUMNS.get(options.order_by)
    return by_name if column is None else sorted(by_name, key=lambda entry: -entry.total[column])


def _is_shown(entry: Entry, options: Options, totals: Container[str]) -> bool:
    for name, least in options.minimums.items():
        column = COLUMNS[name]
        assert column is not None
        if (entry.total if name in totals else entry.own)[column] < least:
            return False
    return matches(options.show, [entry.name]) and not matches(options.hide, [entry.name])

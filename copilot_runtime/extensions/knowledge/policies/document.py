"""Read rules from YAML. Each mistake is named with its line and column.

default: deny                        # for what no rule names; `deny` if it is left out
groups:
  staff: [ann, "*@example.com"]      # `*` in a name is any run of characters
rules:
  - name: handbook
    allow: read                      # read, list, write, delete or all; `read` includes `list`
    groups: staff                    # users and groups: either; agents: and through one of them
    files: handbook                  # a folder or a file, by its path
    resources: common.Folder.handbook/**
    types: common.Document           # the resource itself is of one of these types
    except: {resources: common.Folder.handbook/common.Folder.drafts/**}
"""

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, cast

from copilot_runtime.extensions.knowledge.access import AccessAction
from copilot_runtime.extensions.knowledge.identifiers import name_file
from copilot_runtime.extensions.knowledge.policies.policy import (
    PolicyProblem,
    PolicyUnreadable,
    find_files,
    read_text,
)
from copilot_runtime.extensions.knowledge.policies.rule_policy import NativePolicy
from copilot_runtime.extensions.knowledge.policies.rules import (
    ACTIONS,
    Effect,
    Rule,
    Scope,
    UriPattern,
    list_file_patterns,
)

if TYPE_CHECKING:
    import yaml

_TOP = ("default", "groups", "rules")
_SCOPE = ("users", "groups", "agents", "files", "resources", "types")
_RULE = ("name", "allow", "deny", *_SCOPE, "except")


def read_rules(path: Path) -> NativePolicy:
    """Read a file, or the one in a folder.

    Raises `PolicyUnreadable`, with all mistakes that were found.
    """
    files = [file for suffix in (".yml", ".yaml") for file in find_files(path, suffix)]
    if len({*files}) != 1:
        several = "there are several files of rules: name one of them"
        problem = PolicyProblem(several if files else "the folder has no file of rules")
        raise PolicyUnreadable(path, [problem])
    reader = _Reader()
    policy = reader.read(read_text(files[0]))
    if reader.problems:
        raise PolicyUnreadable(path, sorted(reader.problems, key=lambda it: (it.line, it.column)))
    return policy


class _Reader:
    """Converts YAML nodes to rules, and collects problems."""

    def __init__(self) -> None:
        self.problems: list[PolicyProblem] = []

    def read(self, text: str) -> NativePolicy:
        """Return the policy of a document; it counts only if there are no problems."""
        import yaml

        try:
            root = yaml.compose(text, yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            place = (mark.line + 1, mark.column + 1) if mark else (0, 0)
            quotes = "; put quotes around a text that begins with a star"
            hint = quotes if "'*'" in str(error.problem) else ""
            self.problems.append(PolicyProblem(f"not YAML: {error.problem}{hint}", *place))
            return NativePolicy(())
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            self.problems.append(PolicyProblem(f"not YAML: {error}"))
            return NativePolicy(())
        if root is None:
            self.problems.append(PolicyProblem("the file is empty: write at least 'default: deny'"))
            return NativePolicy(())
        fields = self._fields(root, _TOP, "a policy")
        default = "deny"
        if node := fields.get("default"):
            default = self._choice(node, ("deny", "allow"))
        groups = self._groups(fields["groups"]) if "groups" in fields else {}
        rules = [self._rule(node) for node in self._items(fields.get("rules"), "rules")]
        for name, line in _repeat(rules):
            self.problems.append(
                PolicyProblem(f"there is a rule {name!r} before: names differ", line)
            )
        return NativePolicy(rules, default=cast("Effect", default), groups=groups)

    def _groups(self, node: "yaml.Node") -> dict[str, tuple[str, ...]]:
        fields = self._fields(node, None, "groups")
        return {name: self._texts(members, "a group") for name, members in fields.items()}

    def _rule(self, node: "yaml.Node") -> Rule:
        fields = self._fields(node, _RULE, "a rule")
        line, column = _place(node)
        effects = [effect for effect in ("allow", "deny") if effect in fields]
        actions: frozenset[AccessAction] = frozenset()
        if len(effects) == 1:
            actions = self._actions(fields[effects[0]])
        elif fields:
            self._report(node, "a rule has either 'allow' or 'deny', with its actions")
        name = self._texts(fields["name"], "a name") if "name" in fields else ("",)
        if len(name) > 1:
            self._report(fields["name"], "a rule has one name")
        exception = None
        if found := fields.get("except"):
            exception = self._scope(self._fields(found, _SCOPE, "except"))
            if exception == Scope() and not self._has_problem(found):
                self._report(found, "'except' is empty: it would leave out everything")
        effect: Effect = "deny" if effects == ["deny"] else "allow"
        scope = self._scope(fields)
        return Rule(effect, actions, scope, exception, "".join(name[:1]), line, column)

    def _scope(self, fields: "dict[str, yaml.Node]") -> Scope:
        values = {
            name: self._texts(fields[name], f"{name!r}") if name in fields else ()
            for name in _SCOPE
        }
        patterns = tuple(map(UriPattern, values["resources"]))
        for pattern, node in zip(patterns, _leaves(fields.get("resources")), strict=False):
            if reason := pattern.find_problem():
                self._report(node, f"the pattern {pattern.text!r} matches nothing: {reason}")
        for type_, node in zip(values["types"], _leaves(fields.get("types")), strict=False):
            if type_.count(".") != 1 or "/" in type_ or type_.startswith("."):
                self._report(
                    node, f"{type_!r} is no type: a type is two words, as in common.Message"
                )
        for path, node in zip(values["files"], _leaves(fields.get("files")), strict=False):
            patterns += self._files(node, path)
        return Scope(values["users"], values["groups"], values["agents"], patterns, values["types"])

    def _files(self, node: "yaml.Node", path: str) -> tuple[UriPattern, ...]:
        """Return the patterns for a path, which stands for all that is below it."""
        name = name_file(Path(path.removesuffix("/**")))
        patterns = list_file_patterns(name)
        if name == ".":
            self._report(node, f"{path!r} is the whole folder of the server: name what is in it")
        elif reason := patterns[0].find_problem():
            self._report(node, f"the path {path!r} matches nothing: {reason}")
        return patterns

    def _actions(self, node: "yaml.Node") -> frozenset[AccessAction]:
        """Return the actions of a rule; `read` stands for `list` as well."""
        words = self._texts(node, "actions")
        for leaf in _leaves(node):
            if leaf.value in words:
                self._choice(leaf, (*ACTIONS, "all"))
        if "all" in words:
            return frozenset(ACTIONS)
        implied = ("list",) if "read" in words else ()
        return frozenset(action for action in ACTIONS if action in (*words, *implied))

    def _fields(
        self, node: "yaml.Node", names: Collection[str] | None, what: str
    ) -> "dict[str, yaml.Node]":
        """Return the values of a mapping by key."""
        from yaml import MappingNode

        fields: dict[str, yaml.Node] = {}
        if not isinstance(node, MappingNode):
            keys = f" with {', '.join(names)}" if names else ""
            self._report(node, f"{what} is a mapping{keys}, not {_describe(node)}")
            return fields
        for key, value in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            name = str(key.value)
            if names is not None and name not in names:
                close = get_close_matches(name, names, n=1)
                guess = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"
                self._report(key, f"{what} has no key {name[:80]!r}; {guess}")
            elif name in fields:
                self._report(key, f"{name!r} stands here twice")
            else:
                fields[name] = value
        return fields

    def _items(self, node: "yaml.Node | None", what: str) -> "list[yaml.Node]":
        from yaml import SequenceNode

        if node is None or _is_null(node):
            return []
        if isinstance(node, SequenceNode):
            return node.value
        self._report(node, f"{what!r} is a list: each begins with '- ', not {_describe(node)}")
        return []

    def _texts(self, node: "yaml.Node", what: str) -> tuple[str, ...]:
        """Return a text or a list of texts verbatim, so that `no` stays a name."""
        from yaml import ScalarNode

        texts: list[str] = []
        for leaf in _leaves(node):
            if isinstance(leaf, ScalarNode) and not _is_null(leaf) and leaf.value:
                texts.append(leaf.value)
            else:
                quotes = "; put quotes around a text with braces or a star at its beginning"
                self._report(leaf, f"{what} wants a text, not {_describe(leaf)}{quotes}")
        if not texts and not self._has_problem(node):
            self._report(node, f"{what} is empty; leave the key out if it is for all")
        return tuple(texts)

    def _choice(self, node: "yaml.Node", choices: Collection[str]) -> str:
        if node.value in choices:
            return node.value
        self._report(node, f"{_describe(node)} is none of {', '.join(choices)}")
        return ""

    def _report(self, node: "yaml.Node", message: str) -> None:
        self.problems.append(PolicyProblem(message, *_place(node)))

    def _has_problem(self, node: "yaml.Node") -> bool:
        """Return whether a problem was already reported inside a node."""
        first, last = node.start_mark.line + 1, node.end_mark.line + 1
        return any(first <= problem.line <= last for problem in self.problems)


def _leaves(node: "yaml.Node | None") -> "list[yaml.Node]":
    """Return the items of a list node, or the node itself."""
    from yaml import SequenceNode

    if node is None:
        return []
    return node.value if isinstance(node, SequenceNode) else [node]


def _place(node: "yaml.Node") -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _is_null(node: "yaml.Node") -> bool:
    return node.tag == "tag:yaml.org,2002:null"


def _describe(node: "yaml.Node") -> str:
    from yaml import MappingNode, ScalarNode

    if isinstance(node, ScalarNode):
        return "nothing" if _is_null(node) or not node.value else repr(node.value[:80])
    return "a mapping" if isinstance(node, MappingNode) else "a list"


def _repeat(rules: list[Rule]) -> Iterator[tuple[str, int]]:
    """Yield the name and line of each rule whose name is already used."""
    names: set[str] = set()
    for rule in rules:
        if rule.name and rule.name in names:
            yield rule.name, rule.line
        names.add(rule.name)

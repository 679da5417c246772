"""Parse a value from YAML, with the line of each error."""

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from pydantic import BaseModel, RootModel, ValidationError

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.jsonvalue import JsonValue

if TYPE_CHECKING:
    import yaml

M = TypeVar("M", bound=BaseModel)

_MOST_PROBLEMS = 20
"""Maximum number of errors reported per file."""

_MOST_REPEATED = 100_000
"""Maximum number of values that aliases may add to a document."""

TOO_MANY_ALIASES = (
    f"aliases (`*name`) repeat more than {_MOST_REPEATED:,} values: use fewer of them, "
    "or write the values out"
)


_FENCE = re.compile(r"---[ \t]*\r?\n")


def split_front_matter(text: str) -> tuple[str | None, str]:
    """Return the front matter between two `---` lines at the start of a text, and the rest.

    Without these lines, return `None` and the whole text.
    """
    text = text.removeprefix("\ufeff")
    opening = _FENCE.match(text)
    if opening is None:
        return None, text
    closing = re.compile(r"^---[ \t]*(?:\r?\n|\Z)", re.MULTILINE).search(text, opening.end())
    if closing is None:
        return None, text
    return text[opening.end() : closing.start()], text[closing.end() :]


def parse_yaml_model(
    model: type[M],
    text: str,
    source: str,
    *,
    first_line: int = 1,
    extra: Mapping[str, Any] | None = None,
) -> M:
    """Parse a YAML document and validate it as `model`.

    Args:
        model: The class of the value.
        text: The document; an empty one has no fields.
        source: The path of the document, for errors.
        first_line: The line of the source at which the document begins.
        extra: Additional fields, which are not in the document.

    Raises:
        ConfigurationFailed: With all errors, each as `source:line: …`.
    """

    def locate(line: int | None) -> str:
        return f"{source}:{(line or 0) + first_line}"

    root, values = load_yaml(text, locate)
    values = {} if values is None else values
    if not isinstance(values, dict):
        raise ConfigurationFailed(
            f"{locate(0)}: expected fields such as 'name: …', found a {type(values).__name__}."
        )
    try:
        twice = _find_repetition(root)
    except RecursionError as error:
        raise ConfigurationFailed(f"{locate(0)}: a value contains itself.") from error
    if twice:
        name, line = twice
        raise ConfigurationFailed(f"{locate(line)}: {name!r} is defined twice here.")
    try:
        return model.model_validate({**cast("dict[str, Any]", values), **(extra or {})})
    except ValidationError as error:
        problems = [
            f"{locate(_find_line(root, problem['loc']))}: "
            f"{_describe(model, root, problem['loc'], problem['type'], problem['msg'])}"
            for problem in error.errors(include_url=False, include_input=False)
        ]
        raise ConfigurationFailed("\n".join(problems[:_MOST_PROBLEMS])) from None


def load_yaml(
    text: str, locate: Callable[[int | None], str]
) -> tuple["yaml.Node | None", JsonValue]:
    """Return a YAML document as a tree of nodes with line numbers, and as a value.

    Raises `ConfigurationFailed` that begins with the result of `locate` for the line of the error,
    counted from 0, or `None` if it is unknown.
    """
    import yaml  # imported only if there is such a file

    try:
        root = yaml.compose(text, yaml.SafeLoader)
        if (bomb := find_bomb(root)) is not None:
            raise ConfigurationFailed(f"{locate(bomb)}: {TOO_MANY_ALIASES}.")
        return root, yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark else None
        raise ConfigurationFailed(f"{locate(line)}: not YAML: {error.problem}.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationFailed(f"{locate(None)}: not YAML: {error}.") from error


def find_bomb(root: "yaml.Node | None") -> int | None:
    """Return the line, from 0, of the first value that aliases expand beyond the limit, or `None`.

    A few lines can describe more values than fit into memory ("billion laughs"). Each node is
    visited once, however many aliases refer to it. Call this before the values are constructed,
    because merge keys (`<<`) are already copied then.
    """
    from yaml import MappingNode, SequenceNode

    sizes: dict[int, int] = {}  # expanded sizes, by node identity

    def find(node: "yaml.Node") -> int | None:
        sizes[id(node)] = size = 1  # in case the value contains itself
        parts: list[yaml.Node] = []
        if isinstance(node, MappingNode):
            pairs = cast("list[tuple[yaml.Node, yaml.Node]]", node.value)
            parts = [part for pair in pairs for part in pair]
        elif isinstance(node, SequenceNode):
            parts = cast("list[yaml.Node]", node.value)
        for part in parts:
            if id(part) not in sizes and (line := find(part)) is not None:
                return line
            size += sizes[id(part)]
        sizes[id(node)] = size
        return node.start_mark.line if size - len(sizes) > _MOST_REPEATED else None

    return None if root is None else find(root)


def list_keys(text: str) -> Mapping[str, int]:
    """Return the line, from 1, of each top-level key of a valid YAML document."""
    return {str(key.value): key.start_mark.line + 1 for key, _ in _list_pairs(text)}


def find_line(text: str, path: Sequence[int | str]) -> int:
    """Return the line, from 1, of the value at a path in a valid YAML document."""
    import yaml

    return _find_line(yaml.compose(text, yaml.SafeLoader), path) + 1


def list_lines(text: str, key: str) -> Sequence[int]:
    """Return the line, from 1, of each item of a list in a valid YAML document."""
    items = [item for name, node in _list_pairs(text) if name.value == key for item in node.value]
    return [item.start_mark.line + 1 for item in items]


def _list_pairs(text: str) -> "Sequence[tuple[yaml.Node, yaml.Node]]":
    import yaml

    root = yaml.compose(text, yaml.SafeLoader)
    return root.value if root is not None else []


def _find_line(node: "yaml.Node | None", path: Sequence[int | str]) -> int:
    """Return the line, from 0, of the value at a path, or of its closest existing parent."""
    from yaml import MappingNode, SequenceNode

    line = node.start_mark.line if node is not None else 0
    for step in path:
        if isinstance(node, MappingNode):
            for key, value in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
                if key.value == str(step):
                    node, line = value, key.start_mark.line
                    break
        elif isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = cast("yaml.Node", node.value[step])
            line = node.start_mark.line
    return line


def _list_file_steps(node: "yaml.Node | None", path: Sequence[int | str]) -> Sequence[int | str]:
    """Return a path without the steps that a short form omits: `a: b` for `a: {c: [b]}`."""
    from yaml import MappingNode, ScalarNode, SequenceNode

    steps: list[int | str] = []
    for at, step in enumerate(path):
        if isinstance(node, MappingNode):
            pairs = cast("list[tuple[yaml.Node, yaml.Node]]", node.value)
            found = [value for key, value in pairs if key.value == str(step)]
            if not found:
                return path  # a missing field, or another form
            node = found[0]
        elif isinstance(node, SequenceNode):
            if not isinstance(step, int):
                continue
            items = cast("list[yaml.Node]", node.value)
            if step >= len(items):
                return path
            node = items[step]
        elif isinstance(node, ScalarNode) and at:
            break
        steps.append(step)
    return steps


def _find_repetition(node: "yaml.Node | None") -> tuple[str, int] | None:
    """Return a duplicate key of a mapping with its line, from 0, or `None` if there is none."""
    from yaml import MappingNode, SequenceNode

    if isinstance(node, MappingNode):
        names: set[str] = set()
        for key, value in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            if str(key.value) in names:
                return str(key.value), key.start_mark.line
            names.add(str(key.value))
            if found := _find_repetition(value):
                return found
    elif isinstance(node, SequenceNode):
        for item in cast("list[yaml.Node]", node.value):
            if found := _find_repetition(item):
                return found
    return None


def _describe(
    model: type[BaseModel],
    root: "yaml.Node | None",
    path: Sequence[int | str],
    kind: str,
    text: str,
) -> str:
    where = ".".join(map(str, _list_file_steps(root, path)))
    if kind == "extra_forbidden":
        names = _list_fields(model, path[:-1])
        close = get_close_matches(str(path[-1]), names, n=1)
        guess = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"
        return f"there is no {where!r}; {guess}"
    text = text.removeprefix("Value error, ")
    return f"{where}: {text[:1].lower()}{text[1:]}." if where else text


def _list_fields(kind: Any, path: Sequence[int | str]) -> list[str]:
    """Return the field names of a model, or of the nested model at a path."""
    for step in path:
        kind = _find_model(kind)
        if isinstance(step, int) or kind is None:
            continue
        if issubclass(kind, RootModel):  # its only field is an unnamed mapping
            kind = kind.model_fields["root"].annotation
        elif (field := kind.model_fields.get(step)) is not None:
            kind = field.annotation
    model = _find_model(kind)
    fields = {} if model is None else model.model_fields
    return [field.alias or name for name, field in fields.items()]


def _find_model(kind: Any) -> "type[BaseModel] | None":
    """Return the first model in an annotation such as `dict[str, Model] | None`, or `None`."""
    kinds = [kind]
    while kinds:
        kind = kinds.pop(0)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
        kinds += get_args(kind)
    return None

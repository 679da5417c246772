"""The page `/docs`: an application's OpenAPI description, rendered on the server.

It needs no script and no other host, so it works without Internet access.
"""

import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --accent: #3b6fd4; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .3rem 0 .8rem; } a { color: var(--accent); }
details { border: 1px solid var(--line); border-radius: 8px; margin: .5rem 0; }
summary { cursor: pointer; padding: .5rem .8rem; display: flex; gap: .8rem; align-items: baseline; }
summary b { font: 600 .75rem ui-monospace, monospace; text-transform: uppercase;
  min-width: 4rem; color: var(--accent); }
summary span { margin-left: auto; opacity: .75; text-align: right; }
code, pre { font: .82rem/1.45 ui-monospace, monospace; }
section { padding: 0 .8rem .6rem; } h3 { font-size: .85rem; margin: .6rem 0 .2rem; }
pre { background: var(--soft); padding: .6rem .8rem; border-radius: 6px;
  overflow-x: auto; margin: .3rem 0; }
table { border-collapse: collapse; } td { padding: .1rem 1.2rem .1rem 0; vertical-align: top; }
"""

_DEEPEST = 6


def render_reference(schema: Mapping[str, Any], schema_url: str) -> str:
    """Return the HTML page of an OpenAPI description, whose JSON is at `schema_url`."""
    groups: dict[str, list[str]] = {}
    for path, operations in schema.get("paths", {}).items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["application"])[0]
            groups.setdefault(tag, []).append(_operation(method, path, operation, schema))
    title = escape(schema["info"]["title"])
    body = "".join(f"<h2>{escape(tag)}</h2>{''.join(parts)}" for tag, parts in groups.items())
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>"
        f"<p>Version {escape(schema['info']['version'])} · "
        f'<a href="{escape(schema_url)}">OpenAPI</a></p>{body}</html>'
    )


def _operation(
    method: str, path: str, operation: Mapping[str, Any], schema: Mapping[str, Any]
) -> str:
    parts: list[str] = []
    if about := operation.get("description"):
        parts.append(f"<p>{escape(about)}</p>")
    if parameters := operation.get("parameters"):
        parts.append(f"<h3>Parameters</h3><table>{''.join(map(_parameter, parameters))}</table>")
    if body := operation.get("requestBody"):
        parts.append(f"<h3>Body</h3>{_examples(body, schema)}")
    for status, response in operation.get("responses", {}).items():
        about = escape(response.get("description", ""))
        parts.append(f"<h3>{escape(status)}</h3><p>{about}</p>{_examples(response, schema)}")
    summary = escape(operation.get("summary", ""))
    return (
        f"<details><summary><b>{escape(method)}</b><code>{escape(path)}</code>"
        f"<span>{summary}</span></summary><section>{''.join(parts)}</section></details>"
    )


def _parameter(parameter: Mapping[str, Any]) -> str:
    about = escape(parameter.get("description", ""))
    name, place = escape(parameter["name"]), escape(parameter["in"])
    return f"<tr><td><code>{name}</code></td><td>{place}</td><td>{about}</td></tr>"


def _examples(part: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    return "".join(_content(kind, of, schema) for kind, of in part.get("content", {}).items())


def _content(kind: str, content: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if kind != "application/json":
        return f"<p><code>{escape(kind)}</code></p>"
    example = _example(content.get("schema", {}), schema, 0)
    return f"<pre>{escape(json.dumps(example, indent=2, ensure_ascii=False))}</pre>"


def _example(value: Any, schema: Mapping[str, Any], depth: int) -> Any:
    """Return an example value for a JSON schema, from its own examples if it has any."""
    if not isinstance(value, dict) or depth > _DEEPEST:
        return None
    if reference := value.get("$ref"):
        name = str(reference).rpartition("/")[2]
        named = schema.get("components", {}).get("schemas", {}).get(name)
        return _example(named, schema, depth + 1)
    for key in ("examples", "enum"):
        if value.get(key):
            return value[key][0]
    for key in ("example", "default", "const"):
        if key in value:
            return value[key]
    choices: Iterable[Any] = value.get("anyOf") or value.get("oneOf") or value.get("allOf") or ()
    for choice in choices:
        return _example(choice, schema, depth + 1)
    match value.get("type"):
        case "object":
            fields = value.get("properties", {})
            return {name: _example(field, schema, depth + 1) for name, field in fields.items()}
        case "array":
            return [_example(value.get("items"), schema, depth + 1)]
        case kind:
            return {"string": "text", "integer": 0, "number": 0, "boolean": False}.get(str(kind))

"""The page `/docs`: an application's OpenAPI description, rendered on the server.

It needs no script and no other host, so it works without Internet access.
"""

import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --line: light-dark(#e5e5e1, #2b2f34);
  --quiet: light-dark(#5d6168, #a2a7af); --accent: light-dark(#0f766e, #45c4b7); }
body { font: 15px/1.55 Inter, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  background: light-dark(#fbfbfa, #101113); color: light-dark(#1a1c1f, #ececed);
  max-width: 60rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.25rem; margin: 0; } h2 { font-size: 1.0625rem; margin: 2rem 0 .5rem; }
p { margin: .3rem 0 .8rem; } a { color: var(--accent); }
details { background: light-dark(#fff, #17191c); border: 1px solid var(--line);
  border-radius: .65rem; margin: .4rem 0; }
summary { cursor: pointer; padding: .5rem .9rem; display: flex; flex-wrap: wrap; gap: 0 .8rem;
  align-items: baseline; overflow-wrap: anywhere; }
summary b { font: 600 .75rem ui-monospace, monospace; text-transform: uppercase;
  min-width: 3.2rem; color: var(--accent); }
summary span { margin-left: auto; color: var(--quiet); font-size: .8125rem; }
code, pre { font: .8125rem/1.5 ui-monospace, monospace; }
section { padding: 0 .9rem .6rem; } h3 { font-size: .8125rem; margin: .6rem 0 .2rem; }
pre { background: light-dark(#f3f3f1, #1d2023); padding: .6rem .8rem; border-radius: .45rem;
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

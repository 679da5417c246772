"""Objects of a storage, and the JSON in them."""

import json
from typing import Any

from copilot_runtime.storage import MemoryStorage, ObjectNotFound, Storage
from copilot_runtime.storage.jsonlines import encode_lines
from tests.conformance.copilot_ld.cases import Case

OBJECTS = {
    "a/one.json": b'{"x":0}',
    "a/b/two.json": b'{"x":1}',
    "z.txt": b"text",
}
"""What is in the storage of all cases: keys of it stand in their inputs and outputs."""


async def answer(case: Case) -> Any:
    method = case.feature.partition(" ")[0]
    storage = await make_storage()
    try:
        return await ANSWERS[method](case.input, storage)
    except ObjectNotFound:
        return "ENOENT"


async def make_storage() -> Storage:
    storage = MemoryStorage()
    for key, data in OBJECTS.items():
        await storage.put(key, data)
    return storage


async def from_json_lines(text: str, _: Storage) -> Any:
    return decode_lines(text)


async def from_json(text: str, _: Storage) -> Any:
    return decode_json(text)


async def to_json_lines(values: list[Any], _: Storage) -> str:
    return encode_lines(values).decode()


async def to_json(value: Any, _: Storage) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


async def append(steps: list[str], storage: Storage) -> str:
    """Append what stands behind the word `append` of each step."""
    for step in steps:
        text = step.removeprefix("append ").replace("\\n", "\n")
        await storage.append("log.jsonl", text.removesuffix("\n").encode() + b"\n")
    return (await storage.get("log.jsonl")).decode()


async def find_by_prefix(given: Any, storage: Storage) -> list[str]:
    return await storage.find_by_prefix(*([given] if isinstance(given, str) else given))


async def find_by_extension(extension: str, storage: Storage) -> list[str]:
    return await storage.find_by_extension(extension)


async def list_all(_: Any, storage: Storage) -> list[str]:
    return await storage.list()


async def get_many(keys: list[str], storage: Storage) -> dict[str, Any]:
    found = await storage.get_many(keys)
    return {key: json.loads(data) if key.endswith(".json") else data for key, data in found.items()}


async def get(key: str, storage: Storage) -> Any:
    """Return the value of a `.json`, and the list of a `.jsonl`."""
    text = (await storage.get(key)).decode()
    if key.endswith(".json"):
        return decode_json(text)
    return decode_lines(text) if key.endswith(".jsonl") else {"isBuffer": True}


def decode_json(text: str) -> Any:
    """Read JSON; nothing at all is an empty object."""
    return json.loads(text) if text.strip() else {}


def decode_lines(text: str) -> list[Any]:
    """Read one value of each line that is not blank."""
    return [json.loads(line) for line in text.split("\n") if line.strip()]


async def exists(key: str, storage: Storage) -> bool:
    return await storage.exists(key)


ANSWERS = {
    "fromJsonLines": from_json_lines,
    "fromJson": from_json,
    "toJsonLines": to_json_lines,
    "toJson": to_json,
    "append": append,
    "findByPrefix": find_by_prefix,
    "findByExtension": find_by_extension,
    "list": list_all,
    "getMany": get_many,
    "get": get,
    "exists": exists,
}

"""What editors and the documentation know of both files, taken from the models.

`python -m clusterctl.specs.json_schema inventory.schema.json` prints a schema, as it stands in schemas/.
"""

from __future__ import annotations

import json
import sys

from pydantic import BaseModel

from clusterctl.specs.inventory.schema import (
    InventoryFile,
    NodeEntry,
    NodeSettings,
)
from clusterctl.specs.job.schema import JobFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMAS: dict[str, type[BaseModel]] = {"inventory.schema.json": InventoryFile, "job.schema.json": JobFile}


def render_schemas() -> dict[str, str]:
    """Render the JSON Schema of each file, by the name it has in schemas/."""
    return {name: _render_schema(model) for name, model in SCHEMAS.items()}


def _render_schema(model: type[BaseModel]) -> str:
    schema = model.model_json_schema()
    for definition in (schema, *schema["$defs"].values()):  # type: ignore[record-key]  # of pydantic
        inherits = definition["title"] == NodeEntry.model_config["title"]
        for key, value in definition["properties"].items():
            if reference := value.pop("allOf", None):  # pydantic before 2.9
                value.update(reference[0])
            value["title"] = key
            if value.get("default") is None or (inherits and key in NodeSettings.model_fields):
                value.pop("default", None)
            definition["properties"][key] = dict(sorted(value.items()))
    if model is InventoryFile:  # `nodes: [gpu01]`, which is taken apart before the model sees it
        nodes = schema["properties"]["nodes"]  # type: ignore[record-key]  # of pydantic
        nodes["items"] = {"anyOf": [{"type": "string", "minLength": 1}, nodes["items"]]}
    return json.dumps({"$schema": DIALECT, **schema}, indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Print a schema; returns the exit code."""
    texts = render_schemas()
    if len(arguments) != 1 or arguments[0] not in texts:
        sys.stderr.write(f"usage: python -m clusterctl.specs.json_schema {'|'.join(texts)}\n")
        return 2
    sys.stdout.write(texts[arguments[0]])
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

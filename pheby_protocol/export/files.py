"""Every generated file of the project, by its path from the project's root."""

from __future__ import annotations

import json

from .asyncapi import asyncapi
from .json_schema import bundle, message_schema
from .kotlin import kotlin_files
from .metamodel import metamodel
from .openapi import openapi
from .reference import reference_pages
from .tables import states
from .transcripts import transcripts
from .vectors import generated_vectors

SCHEMAS = "schemas/v1"
VECTORS = "conformance/vectors"
TRANSCRIPTS = "conformance/transcripts/reducer"
REFERENCE = "docs/protocol/reference"
GENERATED_FOLDERS = (SCHEMAS, REFERENCE, TRANSCRIPTS)
"""Folders that hold nothing else: a file there that is not generated any more is stale."""


def generated_files() -> dict[str, str]:
    """Path to text, in a stable order."""
    model, tables = metamodel(), states()
    files = {
        f"{SCHEMAS}/pheby.schema.json": _json(bundle(model)),
        f"{SCHEMAS}/metamodel.json": _json(model),
        f"{SCHEMAS}/states.json": _json(tables),
        f"{SCHEMAS}/asyncapi.json": _json(asyncapi(model)),
        f"{SCHEMAS}/openapi.json": _json(openapi(model)),
    }
    for message in model["messages"]:
        files[f"{SCHEMAS}/messages/{message['type']}.json"] = _json(message_schema(model, message["name"]))
    files |= {f"{SCHEMAS}/kotlin/{name}": text for name, text in kotlin_files(model, tables).items()}
    files |= {f"{VECTORS}/{name}": _json(vectors) for name, vectors in generated_vectors(model).items()}
    files |= {f"{TRANSCRIPTS}/{name}": _json(transcript) for name, transcript in transcripts().items()}
    files |= {f"{REFERENCE}/{name}": text for name, text in reference_pages(model).items()}
    return dict(sorted(files.items()))


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"

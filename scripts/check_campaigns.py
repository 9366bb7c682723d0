#!/usr/bin/env python3
"""Validate campaign files against the JSON Schema, as an editor does, without isotherm's code.

usage: check_campaigns.py SCHEMA FILE...

A file under a directory `shared` is one that others use: it is checked as such. Exit code 1 if a file doesn't fit.
"""

import json
import pathlib
import sys

import jsonschema
import yaml


class Core(yaml.SafeLoader):
    """YAML 1.2's core schema as far as it matters here: `on`, `off`, `yes`, `no`, `12:30` and `0o17` are texts."""


Core.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:int", "tag:yaml.org,2002:timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Core.add_implicit_resolver("tag:yaml.org,2002:bool", __import__("re").compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
Core.add_implicit_resolver("tag:yaml.org,2002:int", __import__("re").compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))


def main(schema_path: str, files: list[str]) -> int:
    schema = json.loads(pathlib.Path(schema_path).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    used = {**schema, "required": [], "properties": {name: schema["properties"][name] for name in ("devices", "models")}}
    bad = 0
    for file in map(pathlib.Path, files):
        document = yaml.load(file.read_text(), Core)
        validator = jsonschema.Draft202012Validator(used if file.parent.name == "shared" else schema)
        errors = sorted(validator.iter_errors(document), key=lambda error: list(map(str, error.absolute_path)))
        for error in errors:
            print(f"{file}: {'/'.join(map(str, error.absolute_path)) or 'the file'}: {error.message[:200]}")
        bad += bool(errors)
    print(f"{len(files)} campaign files, {bad} of them don't fit", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))

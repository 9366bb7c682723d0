#!/usr/bin/env python3
"""Validate campaign files against the JSON Schema, as an editor does, without isotherm's code.

usage: check_campaigns.py SCHEMA FILE... [--refused FILE...]

A file under a directory `shared` is one that others use: it is checked as such. Of a page (`.md`) the first example is checked.
Files behind `--refused` have a fault that the schema has to find. Exit code 1 if it isn't so.
"""

import json
import pathlib
import re
import sys

import jsonschema
import yaml


class Core(yaml.SafeLoader):
    """YAML 1.2's core schema as far as it matters here: `on`, `off`, `yes`, `no`, `12:30` and `0o17` are texts."""


Core.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] not in ("bool", "int", "float", "timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for kind, first, pattern in (
    ("bool", "tTfF", r"^(true|True|TRUE|false|False|FALSE)$"),
    ("int", "-+0123456789", r"^[-+]?[0-9]+$"),
    ("float", "-+.0123456789", r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$"),
):
    Core.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(pattern), list(first))
# `010` is ten, not eight.
Core.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(loader.construct_scalar(node)))


def text_of(file: pathlib.Path) -> str:
    text = file.read_text()
    return text.split("```yaml\n")[1].split("```")[0] if file.suffix == ".md" else text


def main(schema_path: str, files: list[str]) -> int:
    schema = json.loads(pathlib.Path(schema_path).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    used = {**schema, "required": [], "properties": {name: schema["properties"][name] for name in ("devices", "models")}}
    split = files.index("--refused") if "--refused" in files else len(files)
    fitting, refused = files[:split], files[split + 1 :]
    bad = 0
    for file in map(pathlib.Path, fitting + refused):
        document = yaml.load(text_of(file), Core)
        validator = jsonschema.Draft202012Validator(used if file.parent.name == "shared" else schema)
        errors = sorted(validator.iter_errors(document), key=lambda error: list(map(str, error.absolute_path)))
        if str(file) in refused:
            bad += not errors
            if not errors:
                print(f"{file}: the schema finds no fault")
            continue
        for error in errors:
            print(f"{file}: {'/'.join(map(str, error.absolute_path)) or 'the file'}: {error.message[:200]}")
        bad += bool(errors)
    print(f"{len(fitting)} campaign files and {len(refused)} with faults, {bad} of them not as they should be", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))

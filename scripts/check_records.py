#!/usr/bin/env python3
"""Checks every record of a results directory against the JSON Schema, and its seal, with nothing of isotherm's own code.

usage: check_records.py SCHEMA RESULTS_DIR     (needs the PyPI package jsonschema)
"""
import hashlib
import json
import pathlib
import sys

import jsonschema


def main(schema_path, results):
    validator = jsonschema.Draft202012Validator(json.loads(pathlib.Path(schema_path).read_text()))
    records = sorted(p for p in pathlib.Path(results).glob("*/*/*.json"))
    bad = 0
    for path in records:
        raw = path.read_bytes()
        before, _, seal = raw.rpartition(b'"seal":"')
        if seal != hashlib.sha256(before).hexdigest().encode() + b'"}\n':
            print(f"{path}: the seal does not fit")
            bad += 1
        for error in validator.iter_errors(json.loads(raw)):
            print(f"{path}: {error.json_path}: {error.message[:200]}")
            bad += 1
    print(f"{len(records)} records checked, {bad} complaints")
    return 1 if bad or not records else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))

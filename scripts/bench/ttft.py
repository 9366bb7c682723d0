#!/usr/bin/env python3
"""How far the time to first token lies above the server's own time for the prompt. Prints a table with the machine; asserts nothing.

usage: ttft.py [ISOTHERM] [--server LLAMA_SERVER] [--prompts N,N,…] [--requests R] [--threads T]
       default: target/release/isotherm, llama-server in $ISOTHERM_LLAMA_DIR, 256,512,1024,2048, 10, 1

A campaign of backend `llama-server` on a generated model of 38 million parameters. Of every request, both times are of itself: `ttft_ms`
as the agent measures it, from sending to the first token, and `prompt_ms` as the server tells it in its final event. Between the two lie
reading the request, queueing, sampling one token, writing its event, and the loopback device.
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent
CAMPAIGN = """campaign: ttft
devices: {{ here: {{ local: {{}}, builds: {{ it: {{ llama_server: {server} }} }} }} }}
models: {{ m: {{ path: m.gguf }} }}
matrix:
  - devices: here
    backend: llama-server
    model: m
    n_prompt: [{prompts}]
    n_gen: 4
    iterations: {requests}
    threads: {threads}
    repetitions: 1
    retry_contaminated: 0
    prepare: {{ settle: 0ms }}
"""


def requests(results):
    """n_prompt → pairs of both times, ms."""
    found = {}
    for path in sorted(results.glob("here/*/timing-r0.json")):
        record = json.loads(path.read_text())
        if record["status"] != "ok":
            sys.exit(f"{path}: {record['message']}")
        pairs = found.setdefault(record["ids"]["point"]["axes"]["n_prompt"], [])
        for request in json.loads(record["raw"]["stdout"]["head"]["data"])["requests"]:
            pairs.append((request["content_ns"][0] / 1e6, request["timings"]["prompt_ms"]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("isotherm", nargs="?", default="target/release/isotherm", type=pathlib.Path)
    parser.add_argument("--server", default=os.path.join(os.environ.get("ISOTHERM_LLAMA_DIR", ""), "llama-server"))
    parser.add_argument("--prompts", default="256,512,1024,2048")
    parser.add_argument("--requests", default=10, type=int)
    parser.add_argument("--threads", default=1, type=int)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="isotherm-ttft-", dir="/var/tmp") as directory:
        lab = pathlib.Path(directory)
        subprocess.run([sys.executable, SCRIPTS / "gen_gguf.py", "--make", "m.gguf", "512", "12", "--out", lab], check=True, stdout=subprocess.DEVNULL)
        (lab / "c.yaml").write_text(CAMPAIGN.format(**vars(arguments)))
        env = {**os.environ, "HOME": directory, "XDG_STATE_HOME": directory, "ISOTHERM_LEASE": lab.name}
        ended = subprocess.run([arguments.isotherm.resolve(), "run", "c.yaml"], cwd=lab, env=env, capture_output=True, text=True)
        if ended.returncode != 0:
            sys.exit(ended.stderr)
        found = requests(lab / "results" / "ttft")
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    print(f"{cpu}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}\n")
    print("| n_prompt | requests | prompt_ms | ttft_ms | ttft − prompt, ms | most of any request | of prompt_ms |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for n_prompt, pairs in sorted(found.items()):
        ttft, prompt = (statistics.median(values) for values in zip(*pairs))
        above = [ttft - prompt for ttft, prompt in pairs]
        share = statistics.median((ttft - prompt) / prompt for ttft, prompt in pairs)
        print(f"| {n_prompt} | {len(pairs)} | {prompt:.1f} | {ttft:.1f} | {statistics.median(above):.2f} | {max(above):.2f} | {share:.1%} |")


if __name__ == "__main__":
    main()

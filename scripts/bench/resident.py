#!/usr/bin/env python3
"""What it costs the agent to look at the memory of a workload's processes. Prints a table with the machine; asserts nothing.

usage: resident.py [ISOTHERM] [--seconds S] [--processes N,N,…] [--runs R]        default: target/release/isotherm, 20, 1,10,100, 3

A workload of N processes that sleep is run by isotherm, in turn for each N. What is told is CPU time, which other work on the machine leaves
nearly as it is, unlike wall time: of the agent's thread that looks (`resident`), over S seconds in the middle of a run, by the kernel's account
(/proc/PID/task/TID/schedstat), with its looks counted by how often it went to sleep; of the thread that searches for mapped libraries
(`mapped`) up to then, which walks over the same processes; and of the whole agent in the run, from the record.
"""

import argparse
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

CAMPAIGN = """campaign: resident
devices: {{ here: {{ local: {{}} }} }}
matrix:
  - devices: here
    backend: command
    argv: [./sleepers.sh, "{processes}", "{seconds}"]
    repetitions: 1
    warmup: 0
    retry_contaminated: 0
    prepare: {{ settle: 0ms }}
    measure: {{ sample_hz: 0.001 }}
"""
# The shell is one of them.
SLEEPERS = '#!/bin/sh\ni=1\nwhile [ $i -lt "$1" ]; do sleep "$2" & i=$((i + 1)); done\nsleep "$2"\nwait\n'


def thread_of_keeper(place: pathlib.Path, name: str) -> pathlib.Path | None:
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            if str(place).encode() in pathlib.Path("/proc", process, "environ").read_bytes():
                for task in pathlib.Path("/proc", process, "task").iterdir():
                    if (task / "comm").read_text() == f"{name}\n":
                        return task
        except OSError:
            # Gone meanwhile.
            continue
    return None


def spent_ns(thread: pathlib.Path) -> int:
    return int((thread / "schedstat").read_text().split()[0])


def waits(thread: pathlib.Path) -> int:
    return int((thread / "status").read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0])


def run(isotherm: str, place: pathlib.Path, processes: int, seconds: float) -> dict[str, float]:
    (place / "resident.yaml").write_text(CAMPAIGN.format(processes=processes, seconds=seconds + 4))
    environment = {**os.environ, "ISOTHERM_LEASE": f"bench-{os.getpid()}", "XDG_STATE_HOME": str(place / "state")}
    command = [isotherm, "run", "resident.yaml", "--fresh", "--json"]
    controller = subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    thread = None
    while thread is None and controller.poll() is None:
        time.sleep(0.05)
        thread = thread_of_keeper(place, "resident")
    if thread is None:
        sys.exit(f"nobody looks:\n{controller.communicate()}")
    # Past the start of its processes.
    time.sleep(1.5)
    ns, looks, began = spent_ns(thread), waits(thread), time.monotonic()
    time.sleep(seconds)
    ns, looks, lasted = spent_ns(thread) - ns, waits(thread) - looks, time.monotonic() - began
    libraries = thread_of_keeper(place, "mapped")
    libraries_ms = spent_ns(libraries) / 1e6 if libraries else math.nan
    out, err = controller.communicate()
    finished = [event for event in map(json.loads, out.splitlines()) if event["event"] == "finished"]
    if controller.returncode != 0 or len(finished) != 1:
        sys.exit(f"isotherm run failed:\n{err}{out}")
    record = json.loads((place / "results/resident" / finished[0]["path"]).read_text())
    agent_ms = record["observer"]["agent_cpu_ns"] / 1e6
    return {
        "a look, µs": ns / looks / 1e3 if looks else math.nan,
        "looks a second": looks / lasted,
        "looking, % of a CPU": ns / 1e7 / lasted,
        "libraries, ms a run": libraries_ms,
        "agent, ms a run": agent_ms,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("isotherm", nargs="?", default="target/release/isotherm")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--processes", default="1,10,100")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    isotherm, counts = os.path.abspath(args.isotherm), [int(n) for n in args.processes.split(",")]
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    print(f"{cpu}, {os.cpu_count()} CPUs, Linux {platform.release()}, load {os.getloadavg()[0]:.1f} at the start\n")
    found: dict[int, list[dict[str, float]]] = {n: [] for n in counts}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        place = pathlib.Path(name)
        (place / "sleepers.sh").write_text(SLEEPERS)
        (place / "sleepers.sh").chmod(0o755)
        for _ in range(args.runs):
            for n in counts:
                found[n].append(run(isotherm, place, n, args.seconds))
    names = list(found[counts[0]][0])
    print(f"{'processes':>9}" + "".join(f"{name:>22}" for name in names))
    for n, runs in found.items():
        print(f"{n:9}" + "".join(f"{statistics.median(run[name] for run in runs):22.3f}" for name in names))
    print(f"\nmedians of {args.runs} runs of {args.seconds + 4:g} s; load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What a night costs beyond its workloads. Prints tables with the machine; asserts nothing.

usage: night.py [ISOTHERM] [--keep RECORD.json]        default: target/release/isotherm

* 100 runs of `true`: wall time of a run beyond the workload, with containment, telemetry, sealed result, durable record; beside it what
  a loop in Python needs that starts the same program and writes a JSON file for each run, with and without making it durable.
* One run of 60 s with 10 samples a second: the agent's own CPU time, its memory, its size. `--keep` copies its record, for
  `cargo bench --bench scan`.
"""

import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time

ARGS = [arg for arg in sys.argv[1:] if not arg.startswith("--")]
KEEP = sys.argv[sys.argv.index("--keep") + 1] if "--keep" in sys.argv else None
ISOTHERM = os.path.abspath(next((arg for arg in ARGS if arg != KEEP), "target/release/isotherm"))
JOBS = 100

HEAD = """campaign: bench
devices: { here: { local: {} } }
defaults: { warmup: 0, prepare: { settle: 0ms }, measure: { sample_hz: 10 } }
matrix:
"""


def isotherm(place: pathlib.Path, text: str) -> tuple[subprocess.Popen, float]:
    (place / "c.yaml").write_text(HEAD + text)
    environment = {**os.environ, "ISOTHERM_LEASE": f"bench-{os.getpid()}", "XDG_STATE_HOME": str(place / "state")}
    start = time.perf_counter()
    return subprocess.Popen([ISOTHERM, "run", "c.yaml"], cwd=place, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), start


def keeper(place: pathlib.Path) -> int | None:
    """The keeper of this place, by its state directory on its command line."""
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"keep" in line and str(place / "state").encode() in line:
                return int(entry.name)
    return None


def short_runs(place: pathlib.Path) -> float:
    child, start = isotherm(place, f"  - {{ devices: here, backend: command, argv: [/bin/true], repetitions: {JOBS} }}\n")
    if child.wait() != 0:
        sys.exit("isotherm run failed")
    return time.perf_counter() - start


def loop(place: pathlib.Path, durable: bool) -> float:
    start = time.perf_counter()
    for job in range(JOBS):
        begin = time.monotonic_ns()
        ended = subprocess.run(["/bin/true"], capture_output=True)
        record = {"job": job, "code": ended.returncode, "wall_ns": time.monotonic_ns() - begin, "env": dict(os.environ)}
        with open(place / f"{job}.tmp", "w") as out:
            json.dump(record, out)
            if durable:
                out.flush()
                os.fsync(out.fileno())
        os.rename(place / f"{job}.tmp", place / f"{job}.json")
    return time.perf_counter() - start


def main() -> None:
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    print(f"{cpu}, {os.cpu_count()} CPUs, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}\n")
    print(f"{JOBS} runs of `true`{'':28} {'all s':>7} {'a run ms':>9}")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        place = pathlib.Path(name)
        for what, seconds in (
            ("isotherm run", short_runs(place)),
            ("Python: subprocess, JSON file", loop(place, False)),
            ("Python: the same, fsync", loop(place, True)),
        ):
            print(f"{what:45} {seconds:7.2f} {seconds / JOBS * 1000:9.1f}")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        place = pathlib.Path(name)
        child, _ = isotherm(place, "  - { devices: here, backend: command, argv: [sleep, '60'], repetitions: 1 }\n")
        memory = 0
        while child.poll() is None:
            time.sleep(1)
            if pid := keeper(place):
                try:
                    status = pathlib.Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                memory = max([memory] + [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")])
        path = next(iter(place.glob("results/bench/here/*/timing-r0.json")))
        record = json.loads(path.read_text())
        observer, window_s = record["observer"], record["time"]["measure_ms"] / 1000
        agents = sorted(pathlib.Path.home().glob(".cache/isotherm/isotherm-agent-*"), key=lambda agent: agent.stat().st_mtime)
        print(f"\na run of {window_s:.0f} s, {observer['samples']} samples, {observer['missed_samples']} missed")
        print(f"agent's CPU time                              {observer['agent_cpu_ns'] / 1e9 / window_s * 100:7.2f} % of a core")
        print(f"a sample                                      {observer['read_cost_mean_ns'] / 1e6:7.2f} ms mean, {observer['read_cost_max_ns'] / 1e6:.2f} ms at most")
        print(f"keeper's memory at most                       {memory / 1024:7.1f} MiB")
        if agents:
            print(f"agent                                         {agents[-1].stat().st_size / 1e6:7.1f} MB")
        print(f"record                                        {path.stat().st_size / 1e3:7.1f} kB")
        if KEEP:
            shutil.copyfile(path, KEEP)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What being sampled costs a workload that waits for memory. Prints a table with the machine; asserts nothing.

usage: observer.py [ISOTHERM] [--blocks N] [--seconds S] [--mib N] [--rates HZ,HZ,…]     default: target/release/isotherm, 20, 2, 256, 1,10,50

One thread reads a buffer that no cache holds (read.c), for about S seconds a run. Every block runs it in each of these ways, in one order
and then in the reverse one, so that a drift of the machine cancels:

* by isotherm with next to no sampling (one sample in 1000 s): what the others are compared with,
* by isotherm at each of the rates: same keeper, same containment, same workload,
* alone, without isotherm,
* alone, with a shell beside it that starts `cat` for each of the files that isotherm samples, ten times a second, as scripts do,
* alone, with a Python loop beside it that opens and reads them.

A run counts by the mean time of its passes, in which every disturbance is. A block gives one ratio for each way; printed are their median and
the interval between two of them in which the median lies with at least 95 % (binomial, no assumption about the noise).

Where other machines share the memory, such ratios differ by more than what is looked for. So the same is told in another way too, within runs
at 10 Hz: how much longer than those between two samples the two passes take into which a sample falls. What does not come back after 20 ms or
so is not in that; it is in the ratios. As a control the same is told of moments halfway between two samples, where nothing happens.
"""

import argparse
import array
import bisect
import json
import math
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
ALMOST_NONE_HZ = 0.001
LOCKED_HZ = 10
CAMPAIGN = """campaign: observer
devices: {{ here: {{ local: {{}} }} }}
matrix:
  - devices: here
    backend: command
    argv: [./read, "{mib}", "{passes}"]
    env: {{ MARKS: {marks} }}
    repetitions: 1
    warmup: 0
    retry_contaminated: 0
    prepare: {{ settle: 0ms }}
    metrics: {{ pass_ns: {{ from: stdout, json: /pass_ns, unit: ns, better: lower }} }}
"""
FILES = ["/proc/stat", "/proc/loadavg", "/proc/meminfo", "/proc/vmstat", "/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io"]
SHELL = 'while :; do for file in "$@"; do cat "$file" > /dev/null; done; sleep 0.1; done'
PYTHON = "import sys, time\nwhile True:\n    for name in sys.argv[1:]:\n        open(name, 'rb').read()\n    time.sleep(0.1)\n"


def sampled_files() -> list[str]:
    """What isotherm reads here in every sample, as far as it is there."""
    patterns = ["class/thermal/thermal_zone*/temp", "class/hwmon/hwmon*/temp*_input", "devices/system/cpu/cpufreq/policy*/scaling_cur_freq"]
    sensors = [str(path) for pattern in patterns for path in pathlib.Path("/sys").glob(pattern)]
    return [name for name in FILES + sensors if os.access(name, os.R_OK)]


def by_isotherm(isotherm: str, place: pathlib.Path, hz: float) -> tuple[float, float, dict]:
    """Mean time of a pass, ns, the agent's CPU time, % of a core, and the record."""
    environment = {**os.environ, "ISOTHERM_LEASE": f"bench-{os.getpid()}", "XDG_STATE_HOME": str(place / "state")}
    command = [isotherm, "run", "observer.yaml", "--fresh", "--json", "--set", f"measure.sample_hz={hz}"]
    ran = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    finished = [event for event in map(json.loads, ran.stdout.splitlines()) if event["event"] == "finished"]
    if ran.returncode != 0 or len(finished) != 1 or not finished[0]["headline"]:
        sys.exit(f"isotherm run failed:\n{ran.stderr}{ran.stdout}")
    record = json.loads((place / "results/observer" / finished[0]["path"]).read_text())
    cpu = record["observer"]["agent_cpu_ns"] / 1e6 / record["time"]["measure_ms"] * 100
    return finished[0]["headline"][1]["value"], cpu, record


def excess(place: pathlib.Path, record: dict, shift: float) -> list[float]:
    """By how much the two passes from each sample on are longer than two others before the next one, ns; `shift`: of a period, off the samples."""
    marks = array.array("q", (place / "marks").read_bytes())
    samples = record["samples"]["inline"]["monotonic_ns"]
    found = []
    for this, following in zip(samples, samples[1:]):
        moment = this + shift * (following - this)
        first = bisect.bisect_right(marks, moment) - 1
        end = bisect.bisect_right(marks, moment + following - this) - 1
        # The passes with the sample, and at least two without any; a control leaves out those with the next sample.
        others = [k for k in range(first + 2, end) if not any(marks[k] <= at < marks[k + 1] for at in samples)]
        if first >= 0 and end + 1 < len(marks) and len(others) >= 2:
            pass_ns = statistics.mean(marks[k + 1] - marks[k] for k in others)
            found.append(marks[first + 2] - marks[first] - 2 * pass_ns)
    return found


def told(values: list[float], hz: float) -> str:
    """Median with its interval, as a share of the time between two samples."""
    between, share = interval(values), hz / 1e9 * 100
    if between is None:
        return "too few samples"
    return f"{statistics.median(values) * share:+10.3f} %   [{between[0] * share:+.3f}, {between[1] * share:+.3f}] %   {len(values)} samples"


def alone(place: pathlib.Path, arguments: list[str], beside: list[str] | None) -> float:
    # A group of its own, so that what it has just started ends with it.
    other = subprocess.Popen(beside, stdout=subprocess.DEVNULL, start_new_session=True) if beside else None
    try:
        ran = subprocess.run(["./read", *arguments], cwd=place, capture_output=True, text=True, check=True)
    finally:
        if other:
            os.killpg(other.pid, signal.SIGKILL)
            other.wait()
    return json.loads(ran.stdout)["pass_ns"]


def interval(values: list[float]) -> tuple[float, float] | None:
    """Between two order statistics, 95 % at least; None for fewer than six values."""
    n, ordered = len(values), sorted(values)
    below, low = 0.0, -1
    for k in range(n // 2):
        below += math.comb(n, k) / 2**n
        if 2 * below > 0.05:
            break
        low = k
    return (ordered[low], ordered[n - 1 - low]) if low >= 0 else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("isotherm", nargs="?", default="target/release/isotherm")
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rates", default="1,10,50")
    parser.add_argument("--locked", type=int, default=20, help="runs in which passes with a sample are told from those without")
    args = parser.parse_args()
    isotherm, files = os.path.abspath(args.isotherm), sampled_files()
    rates = [float(rate) for rate in args.rates.split(",")]
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    print(f"{cpu}, {os.cpu_count()} CPUs, Linux {platform.release()}, load {os.getloadavg()[0]:.1f} at the start")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        place = pathlib.Path(name)
        subprocess.run([os.environ.get("CC", "cc"), "-O3", "-o", place / "read", HERE / "read.c"], check=True)
        pass_ns = alone(place, [str(args.mib), "4"], None)
        passes = max(1, round(args.seconds * 1e9 / pass_ns))
        print(f"a pass reads {args.mib} MiB at {args.mib * (1 << 20) / pass_ns:.1f} GB/s; {passes} passes a run, {args.blocks} blocks\n")
        (place / "observer.yaml").write_text(CAMPAIGN.format(mib=args.mib, passes=passes, marks=place / "marks"))
        arguments, agent = [str(args.mib), str(passes)], {}

        def sampled(hz: float):
            def run() -> float:
                value, cpu, _ = by_isotherm(isotherm, place, hz)
                agent.setdefault(hz, []).append(cpu)
                return value

            return run

        base = "isotherm, one sample in 1000 s"
        ways = {base: sampled(ALMOST_NONE_HZ)}
        ways |= {f"isotherm, {hz:g} Hz": sampled(hz) for hz in rates}
        ways["alone"] = lambda: alone(place, arguments, None)
        ways["alone, beside it cat from a shell, 10 Hz"] = lambda: alone(place, arguments, ["/bin/sh", "-c", SHELL, "sh", *files])
        ways["alone, beside it a Python loop, 10 Hz"] = lambda: alone(place, arguments, [sys.executable, "-c", PYTHON, *files])
        times: dict[str, list[float]] = {way: [] for way in ways}
        ratios: dict[str, list[float]] = {way: [] for way in ways}
        began = time.monotonic()
        for _ in range(args.blocks):
            block: dict[str, list[float]] = {way: [] for way in ways}
            for way in [*ways, *reversed(ways)]:
                block[way].append(ways[way]())
            for way, values in block.items():
                times[way] += values
                ratios[way].append(math.sqrt(math.prod(values) / math.prod(block[base])))
        if args.blocks:
            print(f"{'':44}{'pass, ms':>10}{'slower by':>12}{'95 % of the median':>26}{'agent CPU':>12}")
        for way in ways if args.blocks else ():
            median = statistics.median(times[way]) / 1e6
            line = f"{way:44}{median:10.3f}"
            if way != base:
                between = interval(ratios[way])
                shown = "too few blocks" if between is None else f"[{(between[0] - 1) * 100:+.2f}, {(between[1] - 1) * 100:+.2f}] %"
                line += f"{(statistics.median(ratios[way]) - 1) * 100:+10.2f} %{shown:>26}"
            else:
                line += f"{'':38}"
            hz = ALMOST_NONE_HZ if way == base else next((hz for hz in rates if way == f"isotherm, {hz:g} Hz"), None)
            print(line + (f"{statistics.median(agent[hz]):10.2f} %" if hz else ""))
        at_samples, halfway = [], []
        for _ in range(args.locked):
            _, _, record = by_isotherm(isotherm, place, LOCKED_HZ)
            at_samples += excess(place, record, 0.0)
            halfway += excess(place, record, 0.5)
        if args.locked:
            print(f"\n{LOCKED_HZ} Hz, passes with a sample beside those without:  {told(at_samples, LOCKED_HZ)}")
            print(f"{'the same of moments between two samples:':>50}  {told(halfway, LOCKED_HZ)}")
        print(f"\n{len(files)} files are read by the loops; {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()

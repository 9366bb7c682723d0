#!/usr/bin/env python3
"""How long does a plan of many points take? Prints a table with the machine; asserts nothing.

usage: plan.py [ISOTHERM] [POINTS]        default: target/release/isotherm 100000

Three campaigns of that many points: one block of axes; several blocks with `when`, `zip` and an `include`; and, for comparison,
what Python needs to build the same points as dictionaries (`itertools.product`), which is how sweep scripts do it.
"""

import itertools
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time

ISOTHERM = sys.argv[1] if len(sys.argv) > 1 else "target/release/isotherm"
POINTS = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
RUNS = 5


def axes(n: int) -> tuple[int, int]:
    a = int(n**0.5)
    return a, -(-n // a)


def one_block(n: int) -> str:
    a, b = axes(n)
    return f"""devices: {{ here: {{ local: {{}} }} }}
matrix:
  - devices: here
    backend: command
    params: {{ a: {list(range(a))}, b: {list(range(b))} }}
    argv: [./bench, "{{a}}", "{{b}}"]
"""


def several(n: int) -> str:
    blocks = []
    a, b = axes(n // 4)
    for block in range(4):
        blocks.append(f"""  - devices: here
    backend: command
    params: {{ a: {list(range(a))} }}
    zip: [{{ params: {{ b: {list(range(b))}, c: {list(range(b))} }} }}]
    env: {{ BLOCK: "{block}" }}
    when: "a >= 0 and b in [1, 2] or b != -1"
    include: [{{ a: -1 }}]
    argv: [./bench{block}, "{{a}}", "{{b}}", "{{c}}"]
""")
    return "devices: { here: { local: {} } }\nmatrix:\n" + "".join(blocks)


def timed(text: str) -> tuple[list[float], int, str]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        file = os.path.join(place, "bench.yaml")
        with open(file, "w") as out:
            out.write(text)
        times, peak, first = [], 0, ""
        for _ in range(RUNS):
            start = time.perf_counter()
            child = subprocess.Popen([os.path.abspath(ISOTHERM), "plan", file, "--results", place], stdout=subprocess.PIPE, text=True)
            output = child.stdout.read()
            _, status, usage = os.wait4(child.pid, 0)
            times.append(time.perf_counter() - start)
            if status != 0:
                sys.exit(f"isotherm plan failed: {status}")
            peak = max(peak, usage.ru_maxrss)
            first = output.splitlines()[0]
    return times, peak, first


def python_peer(n: int) -> list[float]:
    a, b = axes(n)
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        points = [{"device": "here", "a": x, "b": y, "argv": ["./bench", str(x), str(y)]} for x, y in itertools.product(range(a), range(b))]
        times.append(time.perf_counter() - start)
        del points
    return times


def main() -> None:
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    print(f"{cpu}, {os.cpu_count()} CPUs, Linux {platform.release()}; {RUNS} runs each, a process from start to end\n")
    print(f"{'campaign':44} {'min s':>7} {'median s':>9} {'max s':>7} {'peak MiB':>9}")
    for name, text in (("one block, 2 axes", one_block(POINTS)), ("4 blocks with zip, when and include", several(POINTS))):
        times, peak, first = timed(text)
        times.sort()
        print(f"{name:44} {times[0]:7.2f} {times[len(times) // 2]:9.2f} {times[-1]:7.2f} {peak / 1024:9.0f}   {first}")
    times = sorted(python_peer(POINTS))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{'Python: product of the axes as dictionaries':44} {times[0]:7.2f} {times[len(times) // 2]:9.2f} {times[-1]:7.2f} {peak:9.0f}   expansion only")


if __name__ == "__main__":
    main()

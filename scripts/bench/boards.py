#!/usr/bin/env python3
"""What a device costs that is reached over ssh. Prints a table with the machine; asserts nothing.

usage: boards.py [ISOTHERM]        default: target/release/isotherm

An sshd of its own listens on loopback, as whoever calls this, with keys of its own; the `local` device beside it shows what of the time
is ssh's. A network adds its round trips: three for each run.
"""

import os
import pathlib
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ISOTHERM = os.path.abspath(next(iter(sys.argv[1:]), "target/release/isotherm"))
JOBS = 100
TIMES = 5


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def server(place: pathlib.Path) -> tuple[subprocess.Popen, int]:
    """An sshd that lets in one key, and what a client needs to reach it as `board`."""
    sshd = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin")
    if sshd is None:
        sys.exit("no sshd here: apt install openssh-server")
    for key in ("key", "host_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / key], check=True)
    port = free_port()
    (place / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {place}/host_key\nAuthorizedKeysFile {place}/key.pub\nPidFile none\nUsePAM no\nStrictModes no\n"
    )
    (place / "known_hosts").write_text(f"[127.0.0.1]:{port} {(place / 'host_key.pub').read_text()}")
    (place / "ssh_config").write_text(
        f"Host board\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {place}/key\n  IdentitiesOnly yes\n  UserKnownHostsFile {place}/known_hosts\n"
    )
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)
    child = subprocess.Popen([sshd, "-D", "-f", place / "sshd_config", "-E", place / "sshd.log"])
    for _ in range(500):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return child, port
        time.sleep(0.01)
    sys.exit(f"sshd does not listen: {(place / 'sshd.log').read_text()}")


def night(place: pathlib.Path, device: str, repetitions: int) -> float:
    """Seconds of an `isotherm run` of so many runs of `true`, into a new results directory."""
    shutil.rmtree(place / "results", ignore_errors=True)
    (place / "c.yaml").write_text(
        f"""devices: {{ board: {{ {device} }} }}
defaults: {{ warmup: 0, retry_contaminated: 0, prepare: {{ settle: 0ms }} }}
matrix:
  - {{ devices: board, backend: command, argv: [/bin/true], repetitions: {repetitions} }}
"""
    )
    start = time.perf_counter()
    ran = subprocess.run([ISOTHERM, "run", "c.yaml"], cwd=place, capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"isotherm run failed: {ran.stderr}")
    return time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="isotherm-bench-") as place_name:
        place = pathlib.Path(place_name)
        child, _ = server(place)
        try:
            dirs = f"bin_dir: {place}/bin, state_dir: {place}/state"
            devices = {"local": f"local: {{ {dirs} }}", "ssh": f"ssh: {{ host: board, config: {place}/ssh_config, {dirs} }}"}
            rows = []
            for name, device in devices.items():
                first, again, a_job = [], [], []
                for _ in range(TIMES):
                    shutil.rmtree(place / "bin", ignore_errors=True)
                    first.append(night(place, device, 1))
                    again.append(night(place, device, 1))
                    a_job.append((night(place, device, JOBS + 1) - again[-1]) / JOBS)
                rows.append((name, first, again, a_job))
        finally:
            child.kill()
            child.wait()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}; {TIMES} times each, median (least … most)\n")
    print("| device | first contact to first record, agent copied | with the agent there | one run more |")
    print("|---|---|---|---|")
    for name, *columns in rows:
        told = [f"{statistics.median(c) * 1e3:.1f} ms ({min(c) * 1e3:.1f} … {max(c) * 1e3:.1f})" for c in columns]
        print(f"| {name} | {' | '.join(told)} |")


if __name__ == "__main__":
    if any(arg in ("-h", "--help") for arg in sys.argv[1:]):
        print(__doc__)
    else:
        main()

#!/usr/bin/env python3
"""What one controller needs for a fleet of boards over ssh. Prints a table with the machine; asserts nothing. Needs root.

usage: fleet.py [ISOTHERM] [--boards N] [--jobs N]        default: target/release/isotherm, 200, 20

Every board is a network namespace with mounts, processes, boot id and an sshd of its own, all of them on this machine behind one bridge: what
they do takes CPU time away from the controller, so wall times say little, and the controller's own CPU time and memory much. Each runs
`true` so many times; all of them begin at the same moment, with nothing on them.
"""

import argparse
import json
import os
import pathlib
import platform
import resource
import subprocess
import sys
import tempfile
import threading
import time

NET = "10.79"
BOARD = """set -e
mount --bind "$1" /mnt
mount --bind /mnt /root
mount --bind /mnt/boot_id /proc/sys/kernel/random/boot_id
mount -t tmpfs tmpfs /run
mkdir /run/sshd
read -r wired
exec /usr/sbin/sshd -D -f /mnt/sshd_config -E /mnt/sshd.log"""


class Fleet:
    """Boards and the controller's network; all of it ends with this process."""

    def __init__(self, place: pathlib.Path, count: int) -> None:
        self.place, self.boards = place, []
        for key in ("key", "host_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / key], check=True)
        self.hub = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "cat"], stdin=subprocess.PIPE)
        self.wait_for_net(self.hub.pid)
        self.ip(self.hub.pid, "link add hub type bridge\naddr add %s.0.1/16 dev hub\nlink set hub up\n" % NET)
        config = []
        for n in range(count):
            config.append(self.board(n))
        known = (place / "host_key.pub").read_text()
        (place / "known_hosts").write_text(f"{NET}.* {known}")
        common = f"Host *\n  User root\n  IdentityFile {place}/key\n  IdentitiesOnly yes\n  UserKnownHostsFile {place}/known_hosts\n"
        (place / "ssh_config").write_text("".join(config) + common)
        for n in range(count):
            log = place / f"b{n}/sshd.log"
            while not (log.exists() and "Server listening" in log.read_text()):
                time.sleep(0.01)

    def board(self, n: int) -> str:
        dir, address = self.place / f"b{n}", f"{NET}.{1 + n // 250}.{1 + n % 250}"
        dir.mkdir()
        (dir / "boot_id").write_text(pathlib.Path("/proc/sys/kernel/random/uuid").read_text())
        (dir / "sshd_config").write_text(
            f"ListenAddress {address}\nHostKey {self.place}/host_key\nAuthorizedKeysFile {self.place}/key.pub\nPidFile none\nUsePAM no\n"
            "StrictModes no\nUseDNS no\n"
        )
        spaces = "--net --mount --uts --pid --fork --kill-child --mount-proc --propagation private".split()
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", *spaces, "sh", "-c", BOARD, "sh", dir]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd="/")
        self.boards.append(child)
        self.wait_for_net(child.pid)
        self.ip(self.hub.pid, f"link add w{n} type veth peer name eth0 netns {child.pid}\nlink set w{n} master hub up\n")
        self.ip(child.pid, f"addr add {address}/16 dev eth0\nlink set eth0 up\nlink set lo up\n")
        child.stdin.write(b"wired\n")
        child.stdin.close()
        return f"Host b{n}\n  HostName {address}\n"

    @staticmethod
    def wait_for_net(pid: int) -> None:
        while os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            time.sleep(0.001)

    @staticmethod
    def ip(pid: int, lines: str) -> None:
        subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-batch", "-"], input=lines.encode(), check=True)

    def end(self) -> None:
        for child in [*self.boards, self.hub]:
            child.kill()
            child.wait()


def cpu_time() -> float:
    """Of those that we have waited for, s: of a run the controller, and what it has waited for itself. ssh's masters are nobody's children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def campaign(place: pathlib.Path, boards: int, jobs: int) -> None:
    devices = "\n".join(f"  b{n}: {{ ssh: {{ host: b{n}, config: {place}/ssh_config }} }}" for n in range(boards))
    ids = ", ".join(f"b{n}" for n in range(boards))
    (place / "fleet.yaml").write_text(
        f"""devices:
{devices}
defaults: {{ repetitions: {jobs}, warmup: 0, retry_contaminated: 0, prepare: {{ settle: 0ms }} }}
matrix:
  - {{ devices: [{ids}], backend: command, argv: [/bin/true] }}
"""
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("isotherm", nargs="?", default="target/release/isotherm")
    parser.add_argument("--boards", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=20)
    args = parser.parse_args()
    isotherm = os.path.abspath(args.isotherm)
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="isotherm-bench-") as name:
        place = pathlib.Path(name)
        fleet = Fleet(place, args.boards)
        try:
            campaign(place, args.boards, args.jobs)
            peak_kib, threads = 0, 0
            environment = {**os.environ, "XDG_STATE_HOME": str(place / "state")}
            command = ["nsenter", f"--net=/proc/{fleet.hub.pid}/ns/net", isotherm, "run", "fleet.yaml", "--json"]
            start, before = time.perf_counter(), cpu_time()
            run = subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

            def look() -> None:
                nonlocal peak_kib, threads
                while run.poll() is None:
                    try:
                        status = pathlib.Path(f"/proc/{run.pid}/status").read_text()
                    except OSError:
                        return
                    facts = dict(line.split(":", 1) for line in status.splitlines())
                    if "VmHWM" in facts:
                        peak_kib = max(peak_kib, int(facts["VmHWM"].split()[0]))
                        threads = max(threads, int(facts["Threads"]))
                    time.sleep(0.2)

            looking = threading.Thread(target=look)
            looking.start()
            said, errors = run.communicate()
            wall, cpu = time.perf_counter() - start, cpu_time() - before
            looking.join()
        finally:
            fleet.end()
        if run.returncode != 0:
            sys.exit(f"isotherm run failed:\n{errors[-2000:]}{said[-2000:]}")
        ended = json.loads(said.splitlines()[-1])
        records = sorted((place / "results/fleet").glob("b*/*/timing-r*.json"))
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}; boards and controller on one machine\n")
    print("| boards | runs | ok | records | memory at most | threads | CPU time | wall | CPU, of one |")
    print("|---|---|---|---|---|---|---|---|---|")
    print(
        f"| {args.boards} | {ended['ran']} | {ended['ok']} | {len(records)} | {peak_kib / 1024:.0f} MiB | {threads} | {cpu:.1f} s | {wall:.1f} s "
        f"| {cpu / wall:.2f} |"
    )


if __name__ == "__main__":
    main()

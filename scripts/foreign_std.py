"""Where the Rust standard library for another architecture comes from.

Two ways. `Rustup` uses the target of the installed toolchain, or adds it. `Debian` unpacks the distribution's newest compiler into a
cache directory and installs nothing; the library beside it is Debian's own where its archive has one for the architecture, else it is
compiled from Debian's source of it.
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

COMPLETE = ".complete"
# A library is 30 MB. Where the network swallows requests, the next way is tried after this time.
LONGEST_DOWNLOAD_S = 300


class Unavailable(Exception):
    """This way is closed on this machine; in words."""


def say(text):
    print(f"build-agents: {text}", file=sys.stderr, flush=True)


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, text=True, **options)


def output(*command, **options):
    return run(*command, stdout=subprocess.PIPE, **options).stdout


def newest_first(versions):
    """Debian version strings, newest first, each once."""
    unique = sorted(set(versions))
    return subprocess.run(["sort", "-Vr"], input="\n".join(unique), stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def release_of(rustc):
    return re.search(r"^release: (\S+)", output(rustc, "-vV"), re.M)[1]


class Rustup:
    """The toolchain on PATH."""

    name = "rustup"
    rustc = "rustc"
    flags = []

    def provide(self, target):
        if shutil.which(self.rustc) is None:
            raise Unavailable("there is no rustc on PATH")
        if not self._has(target):
            if shutil.which("rustup") is None:
                raise Unavailable(f"its library for {target} is not there, and there is no rustup to add it")
            say(f"rustup target add {target}")
            try:
                added = subprocess.run(["rustup", "target", "add", target], capture_output=True, text=True, timeout=LONGEST_DOWNLOAD_S)
            except subprocess.TimeoutExpired:
                raise Unavailable(f"`rustup target add {target}` did not end within {LONGEST_DOWNLOAD_S} s")
            if added.returncode != 0 or not self._has(target):
                reason = added.stderr.strip().splitlines()[-1:] or ["no reason given"]
                raise Unavailable(f"`rustup target add {target}` failed: {reason[0]}")

    def _has(self, target):
        libdir = subprocess.run([self.rustc, "--print", "target-libdir", "--target", target], capture_output=True, text=True)
        return libdir.returncode == 0 and any(Path(libdir.stdout.strip()).glob("libstd-*.rlib"))


class Debian:
    """`rustc-web`, which Debian keeps new enough for browsers, in `cache`."""

    name = "debian"

    def __init__(self, cache, minimum):
        self.cache = cache
        self.minimum = minimum
        self.home = None
        self.host = None

    @property
    def rustc(self):
        return self.home / "rustc"

    @property
    def flags(self):
        """Where the library's source lies is a matter of this machine; without this its path would be in what is compiled."""
        return [f"--remap-path-prefix={self.home}/usr/lib/rustlib/src/rust=/rustc"]

    def provide(self, target, architecture):
        """Compiler and library for `target`; `architecture` is Debian's name of it."""
        self.home = self.home or self._unpacked()
        if self.home is None or not (self._library(target) / COMPLETE).exists():
            # A library fits one compiler only, and the archive has its newest: an older one in the cache can't be added to.
            version = self._pick_version()
            if self.home is None or version != self._version():
                self.home = self._unpack_compiler(version)
            # And what was compiled with another one doesn't fit this one.
            for stale in [self._library(target), *self.cache.glob(f"target/{self.name}-*/{target}")]:
                shutil.rmtree(stale, ignore_errors=True)
            if not self._unpack_library(target, architecture):
                self._compile_library(target)
            (self._library(target) / COMPLETE).touch()

    def _library(self, target):
        return self.home / "usr/lib/rustlib" / target

    def _unpacked(self):
        homes = [home for home in self.cache.glob("debian-rust-*") if (home / COMPLETE).exists()]
        by_version = {home.name.removeprefix("debian-rust-"): home for home in homes}
        good = [version for version in newest_first(by_version) if self._is_new_enough(version)]
        return by_version[good[0]] if good else None

    def _is_new_enough(self, version):
        numbers = lambda text: [int(part) for part in re.findall(r"\d+", text)[:2]]
        return numbers(version) >= numbers(self.minimum)

    def _unpack_compiler(self, version):
        short = ".".join(version.split(".")[:2])
        said = self._apt(self._host(), "apt-cache", "show", f"libstd-rust-web-{short}={version}")
        llvm = re.search(r"\blibllvm\d+\b", said)
        packages = [f"rustc-web={version}", f"libstd-rust-web-{short}={version}", f"libstd-rust-web-dev={version}"]
        packages += [llvm[0]] if llvm else []
        say(f"unpacking Debian's rustc {version}, nothing is installed")
        home = self.cache / f"debian-rust-{version}"
        shutil.rmtree(home, ignore_errors=True)
        for deb in self.download(self._host(), packages):
            run("dpkg-deb", "-x", deb, home)
        libraries = self._beside_driver(home)
        wrapper = home / "rustc"
        # Its libraries lie where no loader looks.
        wrapper.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={shlex.quote(str(libraries))} exec {shlex.quote(str(home / "usr/bin/rustc"))} "$@"\n')
        wrapper.chmod(0o755)
        release_of(wrapper)
        (home / COMPLETE).touch()
        for other in self.cache.glob("debian-rust-*"):
            if other != home:
                shutil.rmtree(other)
        return home

    @staticmethod
    def _beside_driver(home):
        drivers = list((home / "usr/lib").glob("*/librustc_driver-*.so"))
        if not drivers:
            raise Unavailable("Debian's compiler has no librustc_driver where it was expected")
        return drivers[0].parent

    def _pick_version(self):
        offered = self._versions(self._host(), "rustc-web")
        for version in newest_first(offered & self._versions(self._host(), "libstd-rust-web-dev")):
            if self._is_new_enough(version):
                return version
        there = ", ".join(newest_first(offered)) or "none"
        raise Unavailable(f"Rust {self.minimum} is needed; versions of rustc-web in this machine's Debian archive: {there}")

    def _version(self):
        return self.home.name.removeprefix("debian-rust-")

    def _unpack_library(self, target, architecture):
        """Debian's own library; False if its archive has none of the compiler's version."""
        version = self._version()
        if version not in self._versions(architecture, f"libstd-rust-web-dev:{architecture}"):
            return False
        say(f"unpacking Debian's library for {target}")
        with tempfile.TemporaryDirectory(dir=self.cache) as place:
            for deb in self.download(architecture, [f"libstd-rust-web-dev:{architecture}={version}"]):
                run("dpkg-deb", "-x", deb, place)
            shutil.move(Path(place) / "usr/lib/rustlib" / target, self._library(target))
        return True

    def _compile_library(self, target):
        """From Debian's source of it and the crates that lie beside it, by the same compiler. For `panic = "abort"` only."""
        source = self._source()
        say(f"Debian has no library for {target} of this version: compiling it from source")
        with tempfile.TemporaryDirectory(dir=self.cache) as place:
            crate = Path(place)
            (crate / "src").mkdir()
            (crate / "src/lib.rs").write_text("#![no_std]\n")
            (crate / "Cargo.toml").write_text(
                '[package]\nname = "only-std"\nversion = "0.0.0"\nedition = "2024"\n'
                '[workspace]\n[profile.release]\npanic = "abort"\n[lib]\npath = "src/lib.rs"\n'
            )
            vendored = ["--config", 'source.crates-io.replace-with="beside"', "--config", f"source.beside.directory={str(source / 'vendor')!r}"]
            command = ["cargo", "build", "-q", "--release", "--offline", "--target", target, "-Zbuild-std=std,panic_abort", *vendored]
            # -Zbuild-std is for nightly compilers; this one is told to pass for one, for the library only.
            environment = clean_environment(RUSTC=str(self.rustc), RUSTC_BOOTSTRAP="1", CARGO_ENCODED_RUSTFLAGS="\x1f".join(self.flags))
            run(*command, "--target-dir", crate / "target", cwd=crate, env=environment)
            library = self._library(target) / "lib"
            library.mkdir(parents=True)
            for rlib in (crate / "target" / target / "release/deps").glob("*.rlib"):
                if not rlib.name.startswith("libonly_std-"):
                    shutil.copy(rlib, library)

    def _source(self):
        """`library/` of the compiler's source, at the place where the compiler looks for it."""
        rust = self.home / "usr/lib/rustlib/src/rust"
        if not (rust / COMPLETE).exists():
            shutil.rmtree(rust, ignore_errors=True)
            rust.mkdir(parents=True)
            (deb,) = self.download(self._host(), [f"rust-web-src={self._version()}"])
            with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE) as archive:
                only = ["--strip-components=4", "--wildcards", "./usr/src/rustc-*/library"]
                run("tar", "-x", "-C", rust, *only, stdin=archive.stdout)
            (rust / COMPLETE).touch()
        return rust / "library"

    # An apt of our own for each architecture: the machine's archives and keys, our state. Nothing of the machine's is touched, and an
    # index that can't be had, because an archive lacks the architecture or is out of step, spoils no other one.

    def _host(self):
        if self.host is None:
            if shutil.which("dpkg") is None or shutil.which("apt-get") is None:
                raise Unavailable("this is no Debian")
            self.host = output("dpkg", "--print-architecture").strip()
        return self.host

    def _apt(self, architecture, *command, **options):
        root = self.cache / "apt" / architecture
        if not (root / COMPLETE).exists():
            self._make_apt(root, architecture)
        return output(*command, env=clean_environment(APT_CONFIG=str(root / "apt.conf")), **options)

    def _make_apt(self, root, architecture):
        sources = debian_sources()
        if not sources:
            raise Unavailable("no Debian archive is among this machine's apt sources")
        shutil.rmtree(root, ignore_errors=True)
        for place in ["lists/partial", "cache/archives/partial", "state", "sources.d"]:
            (root / place).mkdir(parents=True)
        (root / "state/status").touch()
        key = "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg"
        (root / "sources.list").write_text("".join(f"deb [arch={architecture} {key}] {uri} {suite} main\n" for uri, suite in sources))
        architectures = " ".join(f'"{a}";' for a in dict.fromkeys([self._host(), architecture]))
        (root / "apt.conf").write_text(
            f'Dir::Etc::sourcelist "{root}/sources.list"; Dir::Etc::sourceparts "{root}/sources.d";\n'
            f'Dir::State "{root}/state"; Dir::State::lists "{root}/lists"; Dir::State::status "{root}/state/status"; Dir::Cache "{root}/cache";\n'
            f'APT::Architecture "{self._host()}"; APT::Architectures {{ {architectures} }};\n'
            'Acquire::Languages "none"; Debug::NoLocking "1"; APT::Sandbox::User ""; Acquire::Retries "2";\n'
        )
        subprocess.run(["apt-get", "-qq", "update"], env=clean_environment(APT_CONFIG=str(root / "apt.conf")), capture_output=True)
        (root / COMPLETE).touch()

    def _versions(self, architecture, package):
        return {line.split("|")[1].strip() for line in self._apt(architecture, "apt-cache", "madison", package).splitlines()}

    def download(self, architecture, packages):
        with_debs = self.cache / "apt" / f"debs-{architecture}"
        shutil.rmtree(with_debs, ignore_errors=True)
        with_debs.mkdir(parents=True)
        self._apt(architecture, "apt-get", "-qq", "download", *packages, cwd=with_debs, stderr=subprocess.DEVNULL)
        return sorted(with_debs.glob("*.deb"))

    def tidy(self):
        """Remove what was only needed on the way; the next time asks the archive anew."""
        shutil.rmtree(self.cache / "apt", ignore_errors=True)


def debian_sources():
    """`(URI, suite)` of the Debian archives that this machine is set up with, its own release and its security updates."""
    codename = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.M)
    if codename is None:
        return []
    uris = []
    for path in [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]:
        text = path.read_text() if path.is_file() else ""
        uris += re.findall(r"^URIs:\s*(\S+)", text, re.M) + re.findall(r"^deb\s+(?:\[[^]]*\]\s+)?(\S+)", text, re.M)
    suites = {"debian": codename[1], "debian-security": f"{codename[1]}-security"}
    return sorted({(uri, suites[uri.rstrip("/").rsplit("/", 1)[-1]]) for uri in uris if uri.rstrip("/").rsplit("/", 1)[-1] in suites})


def clean_environment(**more):
    """Ours without what would steer cargo, and `more`."""
    steering = ("RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET", "CARGO_TARGET_DIR")
    return {name: value for name, value in os.environ.items() if name not in steering} | more

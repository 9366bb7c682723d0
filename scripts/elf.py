"""What an ELF file says about itself: for which machine it is, whether it needs a loader, whether its end is there."""
import re
import struct

MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv"}
PROGRAM_INTERPRETER = 3


# Name of a version of the C library that a program asks for.
GLIBC = re.compile(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)")


class NotElf(ValueError):
    """Says in words what is wrong with the file."""


def facts(data):
    """`machine`, `bits` and `interpreter` (None = static) of an executable's bytes."""
    if not data:
        raise NotElf("is empty")
    if data[:4] != b"\x7fELF" or len(data) < 64:
        raise NotElf("is no ELF executable")
    bits = {1: 32, 2: 64}.get(data[4])
    if bits is None or data[5] != 1:
        raise NotElf("is no little-endian ELF executable")
    wide = bits == 64
    machine = struct.unpack_from("<H", data, 18)[0]
    at, sections_at = struct.unpack_from("<QQ" if wide else "<II", data, 32 if wide else 28)
    size, count, section_size, sections = struct.unpack_from("<HHHH", data, 54 if wide else 42)
    if max(at + size * count, sections_at + section_size * sections) > len(data):
        raise NotElf("is cut")
    interpreter = None
    for index in range(count):
        if struct.unpack_from("<I", data, at + index * size)[0] == PROGRAM_INTERPRETER:
            base = at + index * size
            start, = struct.unpack_from("<Q" if wide else "<I", data, base + (8 if wide else 4))
            length, = struct.unpack_from("<Q" if wide else "<I", data, base + (32 if wide else 16))
            interpreter = data[start : start + length].rstrip(b"\0").decode()
    return {"machine": MACHINES.get(machine, f"number {machine}"), "bits": bits, "interpreter": interpreter}


def glibc(data):
    """The newest version of the GNU C library that a dynamic executable's bytes name, as (major, minor): it runs with no older one."""
    versions = [(int(major), int(minor)) for major, minor in GLIBC.findall(data)]
    if not versions:
        raise NotElf("names no version of the GNU C library")
    return max(versions)

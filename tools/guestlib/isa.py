"""What differs between the guests of the instruction sets: names of packages, compilers, machines.

Nothing here starts anything; every other file of this folder reads its names from here.
"""
import dataclasses
import os


@dataclasses.dataclass(frozen=True)
class Isa:
    """One guest architecture, under Debian's name for it."""
    name: str
    triple: str            # of the cross compiler, and of Debian's library folders
    compiler: str          # the Debian package of the cross compiler
    cpu_family: str        # meson's name
    cpu: str
    kernel_meta: str       # the package that leads to the newest kernel of a suite
    qemu: str
    qemu_package: str
    machine: tuple         # of QEMU's command line
    console: str
    loader: str            # of a dynamically linked program


ISAS = {
    "arm64": Isa("arm64", "aarch64-linux-gnu", "gcc-aarch64-linux-gnu", "aarch64", "armv8-a",
                 "linux-image-arm64", "qemu-system-aarch64", "qemu-system-arm",
                 ("-M", "virt", "-cpu", "max,pauth-impdef=on"), "ttyAMA0",
                 "/lib/ld-linux-aarch64.so.1"),
    "riscv64": Isa("riscv64", "riscv64-linux-gnu", "gcc-riscv64-linux-gnu", "riscv64", "rv64gc",
                   "linux-image-riscv64", "qemu-system-riscv64", "qemu-system-misc",
                   ("-M", "virt", "-cpu", "rv64"), "ttyS0",
                   "/lib/ld-linux-riscv64-lp64d.so.1"),
    "armhf": Isa("armhf", "arm-linux-gnueabihf", "gcc-arm-linux-gnueabihf", "arm", "armv7-a",
                 "linux-image-armmp", "qemu-system-arm", "qemu-system-arm",
                 ("-M", "virt", "-cpu", "cortex-a15"), "ttyAMA0",
                 "/lib/ld-linux-armhf.so.3"),
}

# Kernels by the suite they come from; a word behind the suite is a flavour of its kernel.
KERNELS = ("trixie", "forky", "trixie-16k")
USER_SUITE = "trixie"
NEWEST_SUITE = "forky"
EMULATED = ("aarch64", "riscv64")  # processors whose programs tests run on this machine, by QEMU's names

# What the command, the tests and their targets are linked with.
SYSROOT_PACKAGES = ("libc6-dev", "linux-libc-dev", "libelf-dev", "libdw-dev", "liblzma-dev", "zlib1g-dev",
                    "libbz2-dev", "libzstd-dev", "libjansson-dev", "libiberty-dev", "libcmocka-dev",
                    "libzydis-dev", "libsqlite3-dev")
# What is probed in the guest, and what runs the tests there.
USER_PACKAGES = ("libc6", "libstdc++6", "libssl3t64", "redis-server", "redis-tools", "sqlite3", "python3",
                 "bash", "dash", "coreutils", "mawk", "busybox-static")


def find(name):
    """The guest architecture of that name; a name that is not known ends the program with the list."""
    if name not in ISAS:
        raise SystemExit(f"guest: no architecture {name!r}: one of {', '.join(ISAS)}")
    return ISAS[name]


def cache_folder():
    """Where downloads and what is unpacked from them lie, outside the tree."""
    base = os.environ.get("TRAPLESS_CACHE")
    if not base:
        base = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "trapless")
    return os.path.abspath(base)

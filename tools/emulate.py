#!/usr/bin/env python3
"""Runs a program of another processor on this machine: emulate.py aarch64|riscv64 [QEMU'S OPTION...] PROGRAM [WORD...]

The one place that decides which qemu-user the tests get: that of Debian's newest suite, which knows years of
instructions more than the system's. It is fetched and verified as the guests' kernels are (guestlib/packages.py).
Its version is in TL_EMULATOR for the program, so that a list of what it has not can say of which version it is.

  emulate.py --fetch     only makes sure that it is there
"""
import os
import sys

sys.dont_write_bytecode = True
from guestlib import packages  # pylint: disable=wrong-import-position


def main():
    folder, version = packages.emulators()
    if sys.argv[1:] == ["--fetch"]:
        return 0
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    program = os.path.join(folder, "qemu-" + sys.argv[1])
    sys.stdout.flush()
    os.execve(program, [program, *sys.argv[2:]], {**os.environ, "TL_EMULATOR": version})


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""How much of Debian's programs and libraries a jump reaches: function entries, and the nops of USDT markers. Plans
only: files of another architecture are read, nothing of them runs. Less than the aim is a failure.

usage: test_reach.py TRAPLESS TOOLS ARCH
"""
import collections
import json
import os
import re
import subprocess
import sys
import unittest

TRAPLESS, TOOLS, ARCH = (os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3])
del sys.argv[1:4]
sys.path.insert(0, TOOLS)
from guestlib import isa, packages  # noqa: E402  pylint: disable=wrong-import-position

LIBRARIES = ["libc.so.6", "libstdc++.so.6", "libcrypto.so.3"]
PROGRAMS = ["redis-server", "python3"]
# A database server of which only the file is wanted; it has the most markers of all.
MORE_PACKAGE, MORE_FILE = "postgresql-17", "usr/lib/postgresql/17/bin/postgres"
ENTRIES_MIN, MARKERS_MIN = 99.5, 99  # percent, of all files together
MARKERS = 80  # that there must be at least: none read is none refused


def files():
    """The files' paths, of the guests' user space and of one more package."""
    root = packages.user_tree(ARCH)
    suite = packages.Suite(ARCH, isa.USER_SUITE)
    with packages.lock():
        suite.update()
        more = suite.unpack(suite.alone([MORE_PACKAGE]), MORE_PACKAGE)
    found = [os.path.join(root, "usr/lib", isa.find(ARCH).triple, name) for name in LIBRARIES]
    found += [os.path.join(root, "usr/bin", name) for name in PROGRAMS]
    return [os.path.realpath(path) for path in [*found, os.path.join(more, MORE_FILE)]]


def markers(path):
    """The addresses of the file's USDT sites: section .note.stapsdt."""
    text = subprocess.run(["readelf", "-nSW", path], capture_output=True, text=True, check=True).stdout
    base = re.search(r" \.stapsdt\.base +PROGBITS +([0-9a-f]+) ", text)
    found = re.findall(r"Location: (0x[0-9a-f]+), Base: (0x[0-9a-f]+)", text)
    # What moved the base moved the sites.
    return sorted({int(site, 16) + int(base[1], 16) - int(noted, 16) for site, noted in found})


def explained(path, patterns):
    done = subprocess.run([TRAPLESS, "explain", path, "--json", *patterns], capture_output=True, text=True, check=True)
    sites = [line for line in map(json.loads, done.stdout.splitlines()) if line["type"] == "site"]
    return collections.Counter(site["reason"] if site["method"] == "refused" else site["method"] for site in sites)


class Reach(unittest.TestCase):
    def percent(self, what, counts, least):
        """Tells each file's share, and holds all together against what there must be."""
        for path, count in counts.items():
            if count.total():
                others = "; ".join(f"{n} {why}" for why, n in count.most_common() if why != "jump")
                print(f"{ARCH} {what} {os.path.basename(path)}: {count['jump']} of {count.total()}, "
                      f"{100 * count['jump'] / count.total():.2f} %; {others}", file=sys.stderr)
        whole = sum(counts.values(), collections.Counter())
        share = 100 * whole["jump"] / whole.total()
        print(f"{ARCH} {what}: {whole['jump']} of {whole.total()}, {share:.2f} %", file=sys.stderr)
        self.assertGreaterEqual(share, least)
        return whole.total()

    def test_function_entries(self):
        self.percent("entries", {path: explained(path, ["*"]) for path in files()}, ENTRIES_MIN)

    def test_markers(self):
        counts = {}
        for path in files():
            sites = markers(path)
            patterns = [f"uprobe:{path}:{site:#x}" for site in sites]
            counts[path] = explained(path, patterns) if sites else collections.Counter()
            self.assertEqual(counts[path].total(), len(sites), path)
        self.assertGreaterEqual(self.percent("markers", counts, MARKERS_MIN), MARKERS)


if __name__ == "__main__":
    unittest.main(verbosity=2)

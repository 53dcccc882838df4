"""Instruction caches: the kernel was asked to make visible whatever was written to be executed. An emulated processor
is coherent anyway, so it is the asking that is looked for: every page of detours, and the very bytes of a site.

usage: test_flush.py TRAPLESS
"""
import contextlib
import json
import os
import re
import struct
import subprocess
import sys
import unittest

TRAPLESS = os.path.abspath(sys.argv.pop(1))
TRACING = "/sys/kernel/tracing"
PAGE = os.sysconf("SC_PAGESIZE")
TIMEOUT_S = 60
PROGRAM = "import os\nprint(os.getpid(), flush=True)\nwhile True:\n    os.getppid()"
EVENT = re.compile(r" sync: .* a=0x([0-9a-f]+) b=0x([0-9a-f]+)")


def write(path, text):
    with open(f"{TRACING}/{path}", "w", encoding="ascii") as file:
        file.write(text)


@contextlib.contextmanager
def watched():
    """arch/arm64/mm/flush.c: all that asks for instruction caches of user memory goes through this function."""
    write("kprobe_events", "p:flush/sync sync_icache_aliases a=%x0 b=%x1\n")
    try:
        write("trace", "")
        write("events/flush/sync/enable", "1")
        yield
    finally:
        write("events/flush/sync/enable", "0")
        write("kprobe_events", "")


def synced():
    """[start, end) of kernel addresses, as asked for until now."""
    with open(f"{TRACING}/trace", encoding="ascii", errors="replace") as trace:
        return [(int(match[1], 16), int(match[2], 16)) for match in map(EVENT.search, trace) if match]


def frame(pid, addr):
    """The physical address of a page, or None."""
    with open(f"/proc/{pid}/pagemap", "rb") as pagemap:
        pagemap.seek(addr // PAGE * 8)
        entry = struct.unpack("<Q", pagemap.read(8))[0]
    return (entry & (1 << 55) - 1) * PAGE if entry >> 63 else None


def code_pages(pid):
    """Pages of ours that are executable, by their physical addresses."""
    pages = []
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        for line in maps:
            if "trapless:code" in line and line.split()[1].startswith("r-x"):
                start, end = (int(word, 16) for word in line.split()[0].split("-"))
                pages += [frame(pid, addr) for addr in range(start, end, PAGE)]
    return [page for page in pages if page is not None]


class Flush(unittest.TestCase):
    def setUp(self):
        self.program = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.program.wait)
        self.addCleanup(self.program.kill)
        self.addCleanup(self.program.stdout.close)
        self.pid = int(self.program.stdout.readline())

    def site(self):
        done = subprocess.run([TRAPLESS, "explain", "-p", str(self.pid), "getppid", "--json"], capture_output=True,
                              text=True, timeout=TIMEOUT_S, check=True)
        return int(json.loads(done.stdout.splitlines()[0])["addr"], 16)

    def test_all_that_was_written_was_asked_for(self):
        site = self.site()
        with watched():
            count = subprocess.Popen([TRAPLESS, "count", "-p", str(self.pid), "-i", "1", "--json", "getppid"],
                                     stdout=subprocess.PIPE, text=True)
            self.addCleanup(count.wait)
            self.addCleanup(count.kill)
            self.addCleanup(count.stdout.close)
            line = ""
            while '"count"' not in line:  # it is placed, and it counts
                line = count.stdout.readline()
                self.assertTrue(line, "it ended")
            placed = synced()
            text, pages = frame(self.pid, site), code_pages(self.pid)
            count.terminate()
            count.communicate(timeout=TIMEOUT_S)
            after = synced()[len(placed):]
        exact = [start for start, end in placed if end - start == 4 and start % PAGE == site % PAGE]
        self.assertTrue(exact, "the branch at the site was not made visible")
        base = exact[-1] // PAGE * PAGE - text  # of the kernel's own mapping of all memory
        self.assertGreaterEqual(len(pages), 2)  # the agent, and a pool
        for page in pages:
            self.assertTrue(any(start <= base + page and base + page < end for start, end in placed),
                            f"a page of code at {page:#x} was not made visible")
        self.assertTrue([start for start, end in after if end - start == 4 and start % PAGE == site % PAGE],
                        "the site's own instruction was not made visible again")


if __name__ == "__main__":
    unittest.main()

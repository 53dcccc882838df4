"""Instruction caches: the kernel was asked to make visible whatever was written to be executed. An emulated processor
is coherent anyway, so it is the asking that is looked for: every page of detours, and the very bytes of a site.

usage: test_flush.py TRAPLESS
"""
import contextlib
import glob
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
MACHINE = os.uname().machine
RFENCE = 0x52464E43  # SBI specification, "RFENCE Extension"; function 0 is the remote fence.i
# A write to a file at an offset; PTRACE_POKETEXT, PTRACE_POKEDATA (linux/ptrace.h).
WRITE = re.compile(r" sys_(?:pwrite64\(.*count: (?:0x)?(?P<count>[0-9a-f]+), pos: (?:0x)?(?P<pos>[0-9a-f]+)"
                   r"|ptrace\(request: (?:0x)?[45], pid: (?:0x)?[0-9a-f]+, addr: (?:0x)?(?P<addr>[0-9a-f]+))")
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


def exec_ranges(pid):
    """[start, end) of what is executable and ours."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        return [tuple(int(word, 16) for word in line.split()[0].split("-")) for line in maps
                if "trapless:code" in line and line.split()[1].startswith("r-x")]


def code_pages(pid):
    """Those pages, by their physical addresses."""
    pages = [frame(pid, addr) for start, end in exec_ranges(pid) for addr in range(start, end, PAGE)]
    return [page for page in pages if page is not None]


class Case(unittest.TestCase):
    before = ""  # of the program's text

    def setUp(self):
        self.program = subprocess.Popen([sys.executable, "-c", self.before + PROGRAM], stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.program.wait)
        self.addCleanup(self.program.kill)
        self.addCleanup(self.program.stdout.close)
        self.pid = int(self.program.stdout.readline())

    def site(self):
        done = subprocess.run([TRAPLESS, "explain", "-p", str(self.pid), "getppid", "--json"], capture_output=True,
                              text=True, timeout=TIMEOUT_S, check=True)
        return int(json.loads(done.stdout.splitlines()[0])["addr"], 16)

    @contextlib.contextmanager
    def counted(self):
        """The site has its probe, and it counts; behind, it is gone."""
        count = subprocess.Popen([TRAPLESS, "count", "-p", str(self.pid), "-i", "1", "--json", "--method", "jump",
                                  "getppid"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(count.wait)
        self.addCleanup(count.kill)
        self.addCleanup(count.stdout.close)
        line, before = "", []
        while '"count"' not in line:
            line = count.stdout.readline()
            self.assertTrue(line, f"it ended: {before}")
            before.append(line)
        self.assertEqual(json.loads(line)["method"], "jump", before)
        yield
        count.terminate()
        count.communicate(timeout=TIMEOUT_S)


@unittest.skipUnless(MACHINE == "aarch64", "arm64")
class Arm64(Case):
    def test_all_that_was_written_was_asked_for(self):
        site = self.site()
        with watched():
            with self.counted():
                placed = synced()
                text, pages = frame(self.pid, site), code_pages(self.pid)
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


@unittest.skipUnless(MACHINE == "riscv64", "riscv64")
class Riscv64(Case):
    """No kprobe fires in this kernel's memory management; its request to the other harts is a call of the firmware, which
    has a tracepoint. The program has a hart for itself, whoever writes its text another: so each write needs one."""
    before = "import os\nos.sched_setaffinity(0, {1})\n"

    @contextlib.contextmanager
    def watched(self):
        events = [f"syscalls/sys_{end}_{name}" for name in ("pwrite64", "ptrace") for end in ("enter", "exit")]
        try:
            write("events/riscv/sbi_call/filter", f"ext == {RFENCE:#x} && fid == 0")
            write("trace", "")
            for event in [*events, "riscv/sbi_call"]:
                write(f"events/{event}/enable", "1")
            yield
        finally:
            for event in [*events, "riscv/sbi_call"]:
                write(f"events/{event}/enable", "0")

    @staticmethod
    def writes():
        """[(address, size, whether fence.i of other harts was asked for meanwhile)] of what was written by a file of
        memory or, a word at a time, by ptrace."""
        open_calls, out = {}, []
        with open(f"{TRACING}/trace", encoding="ascii", errors="replace") as trace:
            for line in trace:
                task = line[:line.find("[")].strip()
                match = WRITE.search(line)
                if match:
                    addr, size = (match["pos"], match["count"]) if match["pos"] else (match["addr"], "8")
                    open_calls[task] = [int(addr, 16), int(size, 16), False]
                elif " sbi_call: " in line and task in open_calls:
                    open_calls[task][2] = True
                elif re.search(r" sys_(pwrite64|ptrace) -> ", line) and task in open_calls:
                    out.append(open_calls.pop(task))
        return out

    @staticmethod
    def trace_losses():
        losses = []
        for path in glob.glob(f"{TRACING}/per_cpu/*/stats"):
            with open(path, encoding="ascii") as stats:
                losses += [line.strip() for line in stats if line.startswith(("entries", "overrun", "dropped"))]
        return losses

    def test_all_that_was_written_was_asked_for(self):
        os.sched_setaffinity(0, {0})
        site = self.site()
        with self.watched():
            with self.counted():
                placed, code = self.writes(), exec_ranges(self.pid)
            after = self.writes()[len(placed):]
        for name, writes in (("the branch at the site", placed), ("the site's own instruction", after)):
            here = [asked for addr, size, asked in writes if addr <= site < addr + size]
            self.assertTrue(here, f"{name} at {site:#x} was not written: "
                            f"{[(hex(addr), size) for addr, size, _ in writes]}, {self.trace_losses()}")
            self.assertTrue(all(here), f"{name} was not made visible")
        self.assertGreaterEqual(len(code), 2)  # the agent, and a pool
        for addr, size, asked in placed:
            if any(start <= addr < end for start, end in code):
                self.assertTrue(asked, f"{size} bytes at {addr:#x} were not made visible")


if __name__ == "__main__":
    unittest.main()

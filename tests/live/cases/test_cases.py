"""The hard cases of tests/README.md on real programs: what a probed run prints and how it ends is what
a bare run shows, and hits are what the program knows of itself.

usage: test_cases.py TRAPLESS DRIVE DRIVE_PIE MODES EXPECTED.JSON [TEST...]

The last one says of each form how often it is hit, and which of them are refused.
"""
import ctypes
import json
import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

TRAPLESS, DRIVE, DRIVE_PIE, MODES, EXPECTED = (os.path.abspath(word) for word in sys.argv[1:6])
del sys.argv[1:6]
SLOW = int(os.environ.get("TL_SLOW", "1"))
TIMEOUT_S = 60 * SLOW
ROUNDS = 1000
START_CALLS = 3  # of the constructor of modes.c
NOBODY = 65534
PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241, "riscv64": 241}  # asm/unistd.h
ROOT = os.geteuid() == 0
KERNEL = ROOT and os.path.exists("/sys/bus/event_source/devices/uprobe")
with open(EXPECTED, encoding="utf-8") as expected:
    FORMS = json.load(expected)
# Whether these can be probed depends on what memory is free.
NEIGHBOURS = set(FORMS["depend_on_free_memory"])


def bare(*words, **options):
    return subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
                          stdin=subprocess.DEVNULL, **options)


class Report:
    def __init__(self, text):
        objects = [json.loads(line) for line in text.splitlines()]
        self.probes = {o["probe"]: o for o in objects if o["type"] == "probe"}
        self.hits = {o["probe"].rsplit(":", 1)[1]: o["hits"] for o in objects if o["type"] == "count"}
        self.method = {name.rsplit(":", 1)[1]: o["method"] for name, o in self.probes.items()}
        self.summary = objects[-1]


class Case(unittest.TestCase):
    def launched(self, command, *words, before=()):
        """(result, report) of a probed run, children not followed (live/follow/ does that)."""
        with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
            done = bare(*before, TRAPLESS, "count", "--no-follow", "--json", "-o", out.name, *words, "--",
                        *command)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done, Report(out.read())

    def same(self, command, *words, before=()):
        plain = bare(*command)
        done, report = self.launched(command, *words, before=before)
        self.assertEqual(done.stdout, plain.stdout)
        self.assertEqual(done.stderr, plain.stderr)
        self.assertEqual(report.summary["dropped"], 0)
        return done, report


class Forms(Case):
    def every_form(self, program, method):
        done, report = self.same([program], "-q", "--method", method, "*")
        absent = {line.split()[0] for line in done.stdout.splitlines() if line.endswith(" absent")}
        for name, hits in FORMS["hits"].items():
            if name in absent:  # of instructions that this processor has not
                continue
            if name == "alias_one" and name not in report.method:
                name = "alias_two"
            self.assertIn(name, report.method)
            if report.method[name] == "refused":
                continue
            if report.method[name] == "kernel" and name in FORMS["kernel_counts_more"]:
                self.assertGreater(report.hits[name], hits, name)
            else:
                self.assertEqual(report.hits[name], hits, f"{name} by {report.method[name]}")
        # What the compiler made of the program's own functions is not told: one may be a lone return.
        return {name for name, how in report.method.items() if how == "refused" and
                name in (*FORMS["hits"], "alias_two")}

    def test_every_form_by_jump(self):
        for program in (DRIVE, DRIVE_PIE):
            refused = self.every_form(program, "jump")
            self.assertLessEqual(refused, {*FORMS["jump_may_refuse"], *NEIGHBOURS})

    @unittest.skipUnless(KERNEL, "no kernel probes for this user here")
    def test_every_form_by_jump_or_kernel(self):
        for program in (DRIVE, DRIVE_PIE):
            self.assertLessEqual(self.every_form(program, "auto"), {*FORMS["may_be_refused"], *NEIGHBOURS})

    @unittest.skipUnless(KERNEL, "no kernel probes for this user here")
    def test_every_form_by_the_kernel(self):
        self.every_form(DRIVE, "kernel")

    @unittest.skipUnless(NEIGHBOURS and KERNEL, "no islands here, or no kernel probes for this user")
    def test_no_kernel_probe_on_a_byte_that_a_branch_ends_in(self):
        # Without randomisation the same memory is free in every run, and the same ways are found.
        _, report = self.same([DRIVE], "-q", "island_user", before=("setarch", "-R"))
        self.assertEqual(report.method["island_user"], "jump")
        # Asked for too, the neighbour keeps its first byte, and both go to the kernel.
        _, report = self.same([DRIVE], "-q", "kernel_only", "island_user", before=("setarch", "-R"))
        self.assertEqual(report.method["island_user"], "kernel" if KERNEL else "refused")
        for name, hits in report.hits.items():
            self.assertEqual(hits, ROUNDS, name)

    def test_instructions_inside_functions(self):
        for program in (DRIVE, DRIVE_PIE):
            names = bare(TRAPLESS, "list", program, "--json").stdout
            addrs = {name: int(f["addr"], 16) for f in map(json.loads, names.splitlines()) for name in f["names"]}
            # By addresses: a label that the table of symbols has not may lie between.
            probes = [f"uprobe:{program}:{addrs[name] + int(offset):#x}"
                      for name, offset in (where.split("+") for where in FORMS["inside"])]
            with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
                done = bare(TRAPLESS, "count", "-q", "--json", "-o", out.name, *probes, "--", program)
                self.assertEqual(done.returncode, 0, done.stderr)
                objects = [json.loads(line) for line in out.read().splitlines()]
            self.assertEqual(done.stdout, bare(program).stdout)
            sites = {o["probe"]: o for o in objects if o["type"] == "probe"}
            hits = sorted(o["hits"] for o in objects if o["type"] == "count")
            refused = [(p["function"], p["addr"], p["reason"]) for p in sites.values() if p["method"] == "refused"]
            self.assertEqual(len(sites), len(FORMS["inside"]))
            if KERNEL:
                self.assertEqual(refused, [])
                self.assertEqual(hits, sorted(FORMS["inside"].values()))

    @unittest.skipUnless(FORMS["inside_refused"], "none here")
    def test_what_no_way_can_leave_alone_is_refused_by_every_way(self):
        plain = bare(DRIVE).stdout
        for method in ("auto", "jump", "slot", "step", "kernel"):
            with self.subTest(method=method):
                done = bare(TRAPLESS, "count", "-o", os.devnull, "--method", method, *FORMS["inside_refused"],
                            "--", DRIVE)
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertIn(f"none of {len(FORMS['inside_refused'])} probes could be placed", done.stderr)
                self.assertEqual(done.stdout, plain)  # it runs on

    def test_one_address_is_one_site(self):
        _, report = self.same([DRIVE], "alias_one", "alias_two", "alias_???", "thunk_a", "thunk_a")
        self.assertEqual(report.summary["sites"], 2)
        self.assertEqual(sorted(report.hits.values()), [ROUNDS, ROUNDS])

    @unittest.skipUnless(KERNEL, "no kernel probes for this user here")
    def test_a_started_program_is_counted_from_the_start_by_both_ways(self):
        _, report = self.same([DRIVE], "-q", "main", "short_ret", "short_pair")
        self.assertEqual(report.hits["main"], 1)
        self.assertEqual(report.hits["short_ret"], ROUNDS)


class Launched(Case):
    def test_before_main_and_after_it(self):
        _, report = self.same([MODES, "phases"], "called")
        self.assertEqual(report.hits["called"], START_CALLS + 3 + 3 + 1)

    def test_children_that_share_memory_and_those_that_execute(self):
        _, report = self.same([MODES, "spawn"], "called", "libc:*")
        self.assertEqual(report.hits["called"], START_CALLS + 20 + 20)

    def test_a_daemon_lives_on(self):
        _, report = self.same([MODES, "daemon"], "called", "libc:*")
        self.assertEqual(report.hits["called"], START_CALLS + 10)

    def test_many_short_children(self):
        _, report = self.same([MODES, "forks"], "called", "libc:*fork*", "libc:_exit")
        self.assertEqual(report.hits["called"], START_CALLS + 200)

    def test_hits_in_handlers_that_jump_out(self):
        done, report = self.launched([MODES, "alarm"], "called")
        least, most = (int(word) for word in done.stdout.split()[1:])
        self.assertGreater(most, 60000000)
        self.assertLessEqual(START_CALLS + least, report.hits["called"])
        self.assertLessEqual(report.hits["called"], START_CALLS + most)

    def test_a_filter_that_allows_four_calls(self):
        _, report = self.same([MODES, "seccomp"], "called")
        self.assertEqual(report.hits["called"], START_CALLS + 100000)

    def test_the_whole_allocator_and_what_it_calls(self):
        _, report = self.same([MODES, "alloc"], "*", "*:*")
        self.assertEqual(report.hits["alloc_main"], 8)
        self.assertEqual(report.summary["by_method"].get("refused", 0), 0)

    @unittest.skipUnless(shutil.which("bash"), "no bash here")
    def test_a_shell_with_everything_probed_starts_500_programs(self):
        loop = "i=0; while [ $i -lt 500 ]; do /bin/true; i=$((i+1)); done; echo $i"
        self.same(["bash", "-c", loop], "-q", "*", "libc:*")

    def test_a_started_program_outlives_a_killed_controller(self):
        child = subprocess.Popen([TRAPLESS, "count", "called", "--", MODES, "serve"], text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(child.stdout.readline(), "ready\n")
        child.kill()
        child.wait()
        child.stdin.write("1000\n")
        child.stdin.flush()
        self.assertEqual(child.stdout.readline(), "done\n")
        child.stdin.close()
        child.stdout.close()


class Attached(Case):
    def start(self, mode, program=MODES, **options):
        child = subprocess.Popen([program, mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                 bufsize=1, **options)

        def end():
            child.stdin.close()
            child.stdout.close()
            child.kill()
            child.wait()
        self.addCleanup(end)
        self.assertEqual(child.stdout.readline(), "ready\n")
        return child

    def call(self, child, line):
        child.stdin.write(f"{line}\n")
        self.assertEqual(child.stdout.readline(), "done\n")

    def count(self, child, *words):
        count = subprocess.Popen([TRAPLESS, "count", "-p", str(child.pid), "--json", *words],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        def end():
            count.kill()
            count.wait()
            count.stdout.close()
            count.stderr.close()
        self.addCleanup(end)
        first = count.stdout.readline()
        self.assertTrue(first, "" if first else count.stderr.read())
        return count, json.loads(first)

    def hits(self, count):
        count.send_signal(signal.SIGINT)
        out, errors = count.communicate(timeout=TIMEOUT_S)
        self.assertEqual(count.returncode, 0, errors)
        objects = [json.loads(line) for line in out.splitlines()]
        return {o["probe"].rsplit(":", 1)[1]: o["hits"] for o in objects if o["type"] == "count"}

    def mapped_files(self, child):
        with open(f"/proc/{child.pid}/maps", encoding="utf-8") as maps:
            return [line for line in maps if "/" in line and "trapless" not in line]

    def counted_once(self, child, calls=12345):
        count, probe = self.count(child, "called")
        self.call(child, calls)
        self.assertEqual(self.hits(count), {"called": calls})
        self.call(child, 1)
        return probe

    def test_counts_are_exact_in_each_of_many_rounds(self):
        child = self.start("serve")
        for i in range(15):
            self.counted_once(child, 1000 + i)

    def test_mapped_files_are_as_before(self):
        child = self.start("serve")
        before = self.mapped_files(child)
        self.counted_once(child)
        self.assertEqual(self.mapped_files(child), before)

    def refused(self, child, status, words, *options):
        done = bare(TRAPLESS, "count", "-p", str(child.pid), "-d", "0.1", *options, "called")
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(words, done.stderr)
        self.call(child, 10)

    def test_a_program_without_its_first_thread_is_refused(self):
        self.refused(self.start("leaderless"), 1, "its first thread has ended")

    def test_text_that_is_writable_keeps_its_rights(self):
        child = self.start("writable")
        before = self.mapped_files(child)
        self.refused(child, 3, "writable mapping")
        self.assertEqual(self.mapped_files(child), before)

    def test_text_that_moves_to_other_memory_closes_the_probe(self):
        child = self.start("serve")
        count, _ = self.count(child, "called")
        self.call(child, 100)
        self.call(child, "move")
        self.call(child, 100)
        self.assertEqual(self.hits(count), {"called": 100})
        self.call(child, 100)

    def test_a_program_whose_file_is_gone(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(MODES, folder)
            child = self.start("serve", program=copy)
            os.remove(copy)
            self.counted_once(child)

    def test_the_target_and_its_file_vanish(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(MODES, folder)
            child = self.start("serve", program=copy)
            count, _ = self.count(child, "called")
            self.call(child, 77)
            os.remove(copy)
            child.kill()
            child.wait()
            out, errors = count.communicate(timeout=TIMEOUT_S)
            self.assertEqual(count.returncode, 0, errors)
            self.assertEqual(json.loads(out.splitlines()[0])["hits"], 77)

    @unittest.skipUnless(ROOT, "needs two users")
    def test_another_users_program_in_an_empty_root(self):
        self.counted_once(self.start("serve", user=NOBODY, group=NOBODY, extra_groups=[]))

    def test_a_stopped_program_stays_stopped_and_is_counted_later(self):
        child = self.start("serve")
        child.send_signal(signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        count, _ = self.count(child, "called")
        deadline = time.monotonic() + TIMEOUT_S
        state = ""
        while state != "T" and time.monotonic() < deadline:  # it goes back by itself, once it runs
            with open(f"/proc/{child.pid}/stat", encoding="utf-8") as stat:
                state = stat.read().rsplit(") ", 1)[1][0]
        self.assertEqual(state, "T")
        child.send_signal(signal.SIGCONT)
        self.call(child, 55)
        self.assertEqual(self.hits(count), {"called": 55})

    def kernel_probe(self, child, function):
        """A uprobe that is not ours. Returns a function that takes it away."""
        if not KERNEL:
            self.skipTest("no kernel probes for this user here")
        names = bare(TRAPLESS, "list", MODES, function, "--json").stdout
        offset = int(json.loads(names.splitlines()[0])["addr"], 16)  # text lies at its offset in the file
        with open("/sys/bus/event_source/devices/uprobe/type", encoding="utf-8") as file:
            kind = int(file.read())
        path = ctypes.create_string_buffer(MODES.encode())
        # struct perf_event_attr of linux/perf_event.h: type, size, config, period, sample and read
        # formats, flags, wakeup, bp_type, config1 (the path), config2 (the offset).
        size = 72
        attr = struct.pack("=IIQQQQQIIQQ", kind, size, 0, 0, 0, 0, 0, 0, 0, ctypes.addressof(path), offset)
        libc = ctypes.CDLL(None, use_errno=True)
        event = libc.syscall(PERF_EVENT_OPEN[platform.machine()], attr, child.pid, -1, -1, 0)
        self.assertGreaterEqual(event, 0, os.strerror(ctypes.get_errno()))
        left = [event]

        def end():
            if left:
                os.close(left.pop())
        self.addCleanup(end)
        return end

    def test_beside_a_kernel_probe_of_somebody_else(self):
        child = self.start("serve")
        end = self.kernel_probe(child, "serve")
        self.counted_once(child)
        count, _ = self.count(child, "called")
        end()
        self.call(child, 10)
        self.assertEqual(self.hits(count), {"called": 10})

    def test_at_the_address_of_a_kernel_probe_of_somebody_else(self):
        child = self.start("serve")
        end = self.kernel_probe(child, "called")
        self.refused(child, 3, "another tool was here")
        end()
        self.counted_once(child)

    def test_a_kernel_probe_set_later_at_our_address_outlives_ours(self):
        child = self.start("serve")
        count, _ = self.count(child, "--method", "jump", "called")
        self.call(child, 10)
        end = self.kernel_probe(child, "called")
        self.assertEqual(self.hits(count), {"called": 10})
        self.call(child, 10)
        end()
        self.counted_once(child)


if __name__ == "__main__":
    unittest.main(verbosity=1)

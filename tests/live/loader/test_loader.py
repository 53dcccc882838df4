"""Libraries that come and go: their functions are counted from the first instruction of their constructors to
the last of their destructors, however often they come; the program is held for at most a tenth of a second.

usage: test_loader.py TRAPLESS HOST LIB_A LIB_B LIB_C [TEST...]
"""
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "returns"))
from probed import SLOW, Case, text_differences  # noqa: E402

TRAPLESS, HOST, *LIBRARIES = (os.path.abspath(word) for word in sys.argv[1:6])
del sys.argv[1:6]
Case.trapless = TRAPLESS
MODES = "once kept again in_turn two_threads".split()
# How a library that is not there yet can be named.
FILES = {"path": LIBRARIES, "soname": [os.path.basename(path) for path in LIBRARIES], "star": ["*"] * 3}
HELD_MS = 100  # the longest that a thread waits for a controller
HOOKS = 2  # a load passes the loader's hook so often
SLACK_MS = 100 * SLOW


class Loaded(Case):
    def counted(self, mode, files, *words, action="count", with_main=True):
        told = self.bare([HOST, mode, *LIBRARIES])
        probes = [f"{files[ord(name[0]) - ord('a')]}:{name}" for name in told.entries if name != "host_call"]
        if action != "latency":
            probes += [f"uretprobe:{probe}" for probe in probes if not probe.startswith("*")]
        if with_main:
            probes.append("host_call")
        told, report = self.exact(action, [HOST, mode, *LIBRARIES], probes, *words)
        if action == "latency":
            return told, report
        for name, entries in told.entries.items():
            if name == "host_call" and not with_main:
                continue
            for kind, number in (("uprobe", entries), ("uretprobe", told.returns[name])):
                hits = [c["hits"] for c in report.find(report.counts, kind, name)]
                if kind == "uprobe" or name != "host_call" and files[0] != "*":
                    self.assertEqual(sum(hits), number, f"{kind} {name}: {report.counts}")
                    self.assertLessEqual(len(hits), 1, "one line for one probe")
        return told, report

    def test_latency_of_a_library_that_comes_later(self):
        told, report = self.counted("again", FILES["path"], action="latency")
        calls = [o["count"] for o in report.latencies.values() if o["probe"].endswith(":a_call")]
        self.assertEqual(calls, [told.returns["a_call"]])

    def test_events_of_a_constructor(self):
        told, report = self.counted("once", FILES["path"], action="trace")
        self.assertEqual([e["args"][0] for e in report.events_of("uprobe", "a_starts")], [0, 1, 2])
        self.assertEqual(len(report.events_of("uprobe", "a_stops")), told.entries["a_stops"])

    def test_a_namespace_of_its_own(self):
        """Counted or not, it must work as before."""
        probes = [f"{LIBRARIES[0]}:a_call", f"{LIBRARIES[0]}:a_starts", "host_call"]
        self.same("count", [HOST, "other_namespace", *LIBRARIES], probes)

    def test_nothing_else_to_probe(self):
        """The probes match nothing but what comes later."""
        self.counted("once", FILES["path"], with_main=False)

    def test_all_of_every_library(self):
        for mode in MODES:
            self.same("count", [HOST, mode, *LIBRARIES], ["*:*"], "-q")


class Attached(Case):
    def host(self):
        child = self.child(HOST, "serves", *LIBRARIES)
        self.assertEqual(child.stdout.readline(), "ready\n")
        return child

    def say(self, child, line):
        child.stdin.write(line + "\n")
        return child.stdout.readline().strip()

    def test_a_library_that_comes_after_the_attach(self):
        child = self.host()

        def attempt():
            count = self.attached("count", child.pid, ["host_call", f"{LIBRARIES[0]}:a_*"])
            for _ in range(3):
                self.say(child, "load 0")
                self.say(child, "drop")
            return self.ended(count)
        report = self.patiently(attempt)
        self.assertEqual(report.hits("uprobe", "a_starts"), 9)
        self.assertEqual(report.hits("uprobe", "a_stops"), 6)
        self.assertEqual(report.hits("uprobe", "host_call"), 6)
        self.say(child, "load 0")
        self.assertEqual(text_differences(child.pid), 0)
        self.assertEqual(self.say(child, "end"), "end")

    def test_what_matches_nothing_costs_nothing(self):
        child = self.host()
        count = self.attached("count", child.pid, ["host_call", f"{LIBRARIES[0]}:a_*"])
        times = []
        for _ in range(20):
            times.append(int(self.say(child, "load 2")) / 1e6)
            self.say(child, "drop")
        self.assertLess(sorted(times)[10], HELD_MS / 2 * SLOW, times)
        self.ended(count)

    def test_a_stopped_controller_holds_a_load_for_a_moment_only(self):
        child = self.host()
        count = self.attached("count", child.pid, ["host_call", f"{LIBRARIES[0]}:a_*"])
        count.send_signal(signal.SIGSTOP)
        times = []
        for _ in range(5):
            times.append(int(self.say(child, "load 0")) / 1e6)
            self.say(child, "drop")
        count.send_signal(signal.SIGCONT)
        self.assertLess(max(times), HELD_MS * HOOKS + SLACK_MS, times)
        report = self.ended(count)
        self.assertEqual(report.hits("uprobe", "host_call"), 10)
        self.assertEqual(self.say(child, "load 0").isdigit(), True)
        self.assertEqual(self.say(child, "drop"), "dropped")

    def test_a_killed_controller_holds_nobody_for_long(self):
        child = self.host()
        count = self.attached("count", child.pid, ["host_call", f"{LIBRARIES[0]}:a_*"])
        count.kill()
        count.wait()
        times = []
        for _ in range(10):
            times.append(int(self.say(child, "load 0")) / 1e6)
            self.say(child, "drop")
        self.assertLess(times[0], HELD_MS * HOOKS + SLACK_MS, times)
        self.assertLess(max(times[3:]), SLACK_MS / 2, times)
        done = subprocess.run([TRAPLESS, "detach", "-p", str(child.pid)], capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(text_differences(child.pid), 0)
        self.assertEqual(self.say(child, "end"), "end")

    def test_a_library_that_is_there_at_the_attach_may_leave(self):
        child = None

        def attempt():
            nonlocal child
            child = self.host()
            self.say(child, "load 0")
            count = self.attached("count", child.pid, ["host_call", f"{LIBRARIES[0]}:a_*"])
            self.say(child, "drop")
            self.say(child, "load 1")
            self.say(child, "load 0")
            return self.ended(count)
        report = self.patiently(attempt)
        self.assertEqual(report.hits("uprobe", "a_stops"), 2)
        self.assertEqual(report.hits("uprobe", "a_starts"), 3)
        self.assertEqual(text_differences(child.pid), 0)


def name_tests():
    for mode in MODES:
        for how, files in FILES.items():
            def test(self, m=mode, f=files):
                self.counted(m, f)
            setattr(Loaded, f"test_{mode}_by_{how}", test)


name_tests()
if __name__ == "__main__":
    unittest.main(verbosity=1)

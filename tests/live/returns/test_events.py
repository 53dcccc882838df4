"""Events: whose they are, when they were, what they carry, in which order they come, and what is lost.

usage: test_events.py TRAPLESS FRAMES ENDS THROWS SPINS EVENTS [TEST...]
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from probed import KERNEL, SLOW, TIMEOUT_S, Case, Report, returns_of, text_differences

TRAPLESS, _, _, _, _, EVENTS = (os.path.abspath(word) for word in sys.argv[1:7])
del sys.argv[1:7]
Case.trapless = TRAPLESS
CLOCK_SLACK_NS = 2000  # of one reading of one clock against the other
METHODS = ["jump"] + ["kernel"] * KERNEL


class Events(Case):
    def sorted_by_time(self, report):
        times = [e["ts_ns"] for e in report.events]
        self.assertEqual(times, sorted(times))

    def traced(self, mode, functions, *words):
        begin = time.monotonic_ns()
        told, report = self.same("trace", [EVENTS, mode], functions, *words)
        end = time.monotonic_ns()
        self.sorted_by_time(report)
        for event in report.events:
            self.assertLessEqual(begin, event["ts_ns"])
            self.assertLessEqual(event["ts_ns"], end)
        return told, report

    def complete(self, report, kind, function):
        """hits = events + dropped."""
        events = report.events_of(kind, function)
        self.assertEqual(report.hits(kind, function), len(events) + report.dropped(kind, function))
        return events

    def test_six_arguments_to_the_last_bit(self):
        for method in METHODS:
            told, report = self.traced("arguments", ["takes"], "--method", method)
            self.assertEqual(report.dropped("uprobe", "takes"), 0)
            self.assertEqual([e["args"] for e in report.events_of("uprobe", "takes")], told.args["takes"])

    def marks(self, report, threads, calls, tids=True):
        """Who and when, by what the arguments of marks() say."""
        events = self.complete(report, "uprobe", "marks")
        self.assertEqual(report.dropped("uprobe", "marks"), 0)
        by_thread = {}
        for event in events:
            thread, number, tid, pid, before = event["args"][:5]
            self.assertEqual(event["pid"], pid)
            if tids or event["tid"]:
                self.assertEqual(event["tid"], tid)
            self.assertGreaterEqual(event["ts_ns"], before - CLOCK_SLACK_NS)
            by_thread.setdefault(thread, []).append((number, event["ts_ns"], before))
        self.assertEqual(sorted(by_thread), list(range(threads)))
        for rows in by_thread.values():
            self.assertEqual([row[0] for row in rows], list(range(calls)))
            for (_, stamp, _), (_, _, following) in zip(rows, rows[1:]):
                self.assertLessEqual(stamp, following + CLOCK_SLACK_NS)

    def test_eight_threads_in_order_with_their_ids(self):
        for method in METHODS:
            _, report = self.traced("threads", ["marks"], "--method", method)
            self.marks(report, 8, 2000)

    def test_more_threads_than_places(self):
        _, report = self.traced("crowd", ["marks"])
        self.marks(report, 300, 50, tids=False)

    def test_threads_that_follow_each_other(self):
        _, report = self.traced("successors", ["marks"])
        self.marks(report, 2000, 1)

    def test_nested_calls_come_in_order(self):
        names = ["nested_top", "nested_middle", "nested_leaf"]
        for way in ("exit", "trampoline"):
            _, report = self.traced("nested", names + returns_of(EVENTS, *names), "--return", way)
            got = [(e["probe"].split(":", 1)[0], e["probe"].rsplit("_", 1)[1],
                    e["args"][0] if "args" in e else e["ret"]) for e in report.events]
            want = []
            for i in range(500):
                sum_ = i * 2 + (i + 1) * 2
                want += [("uprobe", "top", i), ("uprobe", "middle", i), ("uprobe", "leaf", i),
                         ("uretprobe", "leaf", i * 2), ("uprobe", "leaf", i + 1),
                         ("uretprobe", "leaf", (i + 1) * 2), ("uretprobe", "middle", sum_),
                         ("uretprobe", "top", sum_ + 1)]
            self.assertEqual(got, want)

    def test_an_event_names_the_probe_and_nothing_else(self):
        _, report = self.traced("arguments", ["takes", *returns_of(EVENTS, "takes")])
        for event in report.events:
            value = "args" if event["probe"].startswith("uprobe:") else "ret"
            self.assertEqual(set(event), {"type", "probe", "ts_ns", "pid", "tid", value})
            self.assertIn(event["probe"], report.probes)


class Flood(Case):
    """A program that calls what is probed as fast as it can; its progress is read from shared memory."""

    def setUp(self):
        self.file = tempfile.NamedTemporaryFile()
        self.addCleanup(self.file.close)
        self.file.truncate(4096)
        self.flood = self.child(EVENTS, "flood", self.file.name)
        self.assertEqual(self.flood.stdout.readline(), "ready\n")

    def progress(self):
        return int.from_bytes(os.pread(self.file.fileno(), 8, 0), sys.byteorder)

    def pace(self, calls=200000):
        """Seconds that it needs for so many more calls."""
        first, begin = self.progress(), time.monotonic()
        self.until(lambda: self.progress() >= first + calls, 60 * SLOW)
        return time.monotonic() - begin

    def trace(self, *words, probes=("marks",), **options):
        command = self.child(TRAPLESS, "trace", "-p", str(self.flood.pid), "--json", *words, *probes,
                             stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)
        self.until(lambda: text_differences(self.flood.pid) > 0 or command.poll() is not None)
        self.assertIsNone(command.poll())
        return command

    def drained(self, command):
        command.send_signal(signal.SIGINT)
        out, errors = command.communicate(timeout=TIMEOUT_S)
        self.assertEqual(command.returncode, 0, errors)
        return Report(out)

    def end_flood(self):
        out, _ = self.flood.communicate("\n", timeout=TIMEOUT_S)
        self.assertEqual(self.flood.returncode, 0)
        self.assertIn("expect marks", out)

    def accounted(self, report):
        events = report.events_of("uprobe", "marks")
        count = report.one(report.counts, "uprobe", "marks")
        self.assertEqual(count["hits"], len(events) + count["dropped"])
        numbers = [e["args"][1] for e in events]
        self.assertEqual(numbers, sorted(set(numbers)))
        times = [e["ts_ns"] for e in report.events]
        self.assertEqual(times, sorted(times))
        return count

    def test_a_reader_that_waits_holds_nobody_and_loses_by_count(self):
        command = self.trace()
        for _ in range(20):
            self.pace()  # nobody reads the pipe
        self.assertGreater(self.accounted(self.drained(command))["dropped"], 0)
        self.assertEqual(text_differences(self.flood.pid), 0)
        self.end_flood()

    def test_a_stopped_controller_holds_nobody(self):
        with tempfile.TemporaryFile("w+") as out:
            command = self.trace(stdout=out)
            before = self.pace()
            command.send_signal(signal.SIGSTOP)
            during = min(self.pace() for _ in range(10))
            command.send_signal(signal.SIGCONT)
            self.pace()
            command.send_signal(signal.SIGINT)
            self.assertEqual(command.wait(TIMEOUT_S), 0)
            self.assertLess(during, 5 * before + 0.5 * SLOW)
            out.seek(0)
            self.accounted(Report(out.read()))
        self.end_flood()

    def test_a_killed_controller_holds_nobody(self):
        with tempfile.TemporaryFile("w+") as out:
            command = self.trace(stdout=out)
            before = self.pace()
            command.kill()
            command.wait()
            after = min(self.pace() for _ in range(10))
            self.assertLess(after, 5 * before + 0.5 * SLOW)
            out.seek(0)
            for line in out.read().splitlines()[:-1]:  # the last one may be cut
                json.loads(line)
        done = subprocess.run([TRAPLESS, "detach", "-p", str(self.flood.pid)], capture_output=True, text=True,
                              timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(text_differences(self.flood.pid), 0)
        self.pace()
        self.end_flood()

    def test_a_reader_that_leaves_ends_the_command_and_nothing_else(self):
        command = self.trace()
        command.stdout.readline()
        command.stdout.close()
        command.stdout = None
        self.assertIn(command.wait(TIMEOUT_S), (0, 1))
        self.until(lambda: text_differences(self.flood.pid) == 0)
        self.end_flood()

    def test_entry_and_return_under_flood_are_accounted_for_each(self):
        with tempfile.TemporaryFile("w+") as out:
            command = self.trace(probes=("marks", *returns_of(EVENTS, "marks")), stdout=out)
            self.pace(1000000)
            command.send_signal(signal.SIGINT)
            self.assertEqual(command.wait(TIMEOUT_S), 0)
            out.seek(0)
            report = Report(out.read())
        self.accounted(report)
        returned = report.one(report.counts, "uretprobe", "marks")
        self.assertEqual(returned["hits"], len(report.events_of("uretprobe", "marks")) + returned["dropped"])
        self.assertLessEqual(abs(report.hits("uprobe", "marks") - returned["hits"]), 1)
        self.end_flood()


if __name__ == "__main__":
    unittest.main(verbosity=1)

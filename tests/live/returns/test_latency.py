"""Latencies of functions that know how long they took: each lies between what the function measured inside
and what its caller measured outside; so do sums, percentiles and every bucket.

usage: test_latency.py TRAPLESS FRAMES ENDS THROWS SPINS EVENTS [TEST...]
"""
import math
import os
import sys
import unittest

from probed import Case, text_differences

TRAPLESS, _, _, _, SPINS, EVENTS = (os.path.abspath(word) for word in sys.argv[1:7])
del sys.argv[1:7]
Case.trapless = TRAPLESS
CLOCK_ERROR = 1e-3  # of the two clocks' rates against each other
CLOCK_SLACK_NS = 60  # of one reading
BUCKET_ERROR = 1 / 32
PERCENTILES = {"p50_ns": 0.5, "p90_ns": 0.9, "p99_ns": 0.99, "p999_ns": 0.999}


def percentile(ordered, part):
    return ordered[min(len(ordered) - 1, max(0, math.ceil(part * len(ordered)) - 1))]


class Latency(Case):
    def shape(self, item):
        """What must hold of any histogram."""
        if not item["count"]:
            self.assertEqual((item["min_ns"], item["max_ns"], item["buckets"]), (None, None, []))
            return
        for key in ("count", "min_ns", "mean_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns", "buckets"):
            self.assertIn(key, item)
        order = [item[k] for k in ("min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns")]
        self.assertEqual(order, sorted(order), item["probe"])
        self.assertLessEqual(item["min_ns"], item["mean_ns"])
        self.assertLessEqual(item["mean_ns"], item["max_ns"])
        self.assertEqual(sum(n for _, _, n in item["buckets"]), item["count"])
        last = -1
        for low, high, n in item["buckets"]:
            self.assertGreater(n, 0)
            self.assertLess(last, low, "buckets overlap")
            self.assertLessEqual(low, high)
            self.assertLessEqual(high - low + 1, low * BUCKET_ERROR + 2, (low, high))
            last = high

    def between(self, item, inside, outside):
        """Every figure against the two lists of times."""
        def check(value, least, most, what, error=0.0):
            self.assertGreaterEqual(value, least * (1 - error - CLOCK_ERROR) - CLOCK_SLACK_NS, what)
            self.assertLessEqual(value, most * (1 + error + CLOCK_ERROR) + CLOCK_SLACK_NS, what)
        inside, outside = sorted(inside), sorted(outside)
        self.assertEqual(item["count"], len(inside))
        check(item["min_ns"], inside[0], outside[0], "min")
        check(item["max_ns"], inside[-1], outside[-1], "max")
        check(item["mean_ns"], sum(inside) / len(inside), sum(outside) / len(outside), "mean")
        for key, part in PERCENTILES.items():
            check(item[key], percentile(inside, part), percentile(outside, part), key, BUCKET_ERROR)
        below = 0
        for _, high, n in item["buckets"]:
            below += n
            least = sum(t * (1 + CLOCK_ERROR) + CLOCK_SLACK_NS <= high for t in outside)
            most = sum(t * (1 - CLOCK_ERROR) - CLOCK_SLACK_NS <= high for t in inside)
            self.assertLessEqual(least, below, f"up to {high} ns")
            self.assertLessEqual(below, most, f"up to {high} ns")

    def timed(self, mode, functions, *words):
        _, report = self.timed_report(mode, functions, *words)
        return report

    def timed_report(self, mode, functions, *words):
        told, report, errors = self.launched("latency", [SPINS, mode], functions, *words)
        for name in functions:
            found = [o for probe, o in report.latencies.items() if probe.rsplit(":", 1)[1] == name]
            self.assertEqual(len(found), 1, errors)
            self.shape(found[0])
            self.between(found[0], told.inside[name], told.outside[name])
        return told, report

    def test_times_from_a_tenth_of_a_microsecond_to_a_millisecond(self):
        self.timed("spin", ["spins"])

    def test_the_same_by_trampoline(self):
        self.timed("spin", ["spins"], "--return", "trampoline")

    def test_a_function_that_waits_for_the_kernel(self):
        self.timed("rest", ["rests"])

    def test_a_hundred_calls_within_each_other(self):
        for way in ("exit", "trampoline"):
            self.timed("nest", ["nests", "leaf"], "--return", way)

    def test_eight_threads_on_two_processors(self):
        self.timed("threads", ["spins"])

    def test_coroutines_inside_at_the_same_time(self):
        for way in ("exit", "trampoline"):
            self.timed("coroutines", ["waits_turn"], "--return", way)

    def test_calls_and_times_add_up_over_intervals(self):
        told, _, _ = self.launched("latency", [SPINS, "spin"], ["spins"], "-i", "0.02")
        self.assertEqual(told.returns["spins"], 1600)

    def test_attached_while_calls_are_under_way(self):
        child = self.child(SPINS, "forever")
        for _ in range(3):
            latency = self.attached("latency", child.pid, ["spins"])
            self.until(lambda: text_differences(child.pid) > 0)
            report = self.ended(latency)
            for item in report.latencies.values():
                self.shape(item)
                if item["count"]:
                    self.assertGreaterEqual(item["min_ns"], 1000 * (1 - CLOCK_ERROR) - CLOCK_SLACK_NS)
            self.assertEqual(text_differences(child.pid), 0)
        out, _ = child.communicate()
        self.assertEqual(child.returncode, 0)
        self.assertIn("calls ", out)


if __name__ == "__main__":
    unittest.main(verbosity=1)

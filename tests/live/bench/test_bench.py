"""The bench measures what it says, on both sides, and leaves nothing behind. No figure is judged but their order.

usage: test_bench.py TRAPLESS
"""
import json
import os
import subprocess
import sys
import unittest

TRAPLESS = os.path.abspath(sys.argv.pop(1))
TIMEOUT_S = 280


def bench(*words):
    """In a session of its own, by which what it leaves can be found. Returns (status, output, errors, left)."""
    with subprocess.Popen([TRAPLESS, "bench", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, start_new_session=True) as child:
        try:
            output, errors = child.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            raise
        return child.returncode, output, errors, session_members(child.pid)


def session_members(session):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                # state, parent, group, session; the name before may hold anything
                if int(file.read().rsplit(")", 1)[1].split()[3]) == session:
                    found.append(pid)
        except OSError:
            continue
    return found


class Bench(unittest.TestCase):
    def test_each_kind_is_measured_on_both_sides(self):
        status, output, errors, _ = bench("--json", "nop", "event", "return", "latency")
        self.assertEqual(status, 0, errors + output)
        lines = [json.loads(line) for line in output.splitlines()]
        rows = {(line["action"], line["kind"], line["case"], line["method"]): line
                for line in lines if line["type"] == "bench"}
        places = [("count", "entry", "nop"), ("event", "entry", "push"), ("event", "entry", "func"),
                  ("return", "exit", "push"), ("return", "exit", "func"), ("return", "trampoline", "func"),
                  ("latency", "exit", "push"), ("latency", "exit", "func"), ("latency", "trampoline", "func")]
        self.assertEqual(set(rows), {place + (method,) for place in places for method in ("jump", "kernel")})
        for place in places:
            jump, kernel = rows[place + ("jump",)], rows[place + ("kernel",)]
            self.assertIsNotNone(jump["ns"], jump)
            self.assertGreater(jump["baseline_ns"], 0)
            self.assertNotEqual(jump["reason"] == "", jump["ns"] is None)
            self.assertNotEqual(kernel["reason"] == "", kernel["ns"] is None)
            if kernel["ns"] is not None:
                self.assertGreater(kernel["ns"], jump["ns"])
        if os.geteuid() == 0:
            unmeasured = {place for place in places if rows[place + ("kernel",)]["ns"] is None}
            self.assertEqual({kind for _, kind, _ in unmeasured}, {"trampoline"})
        self.check_figures({line["name"]: line for line in lines if line["type"] == "figure"}, rows)

    def check_figures(self, figures, rows):
        clock = figures["one clock read"]["value"]
        self.assertGreater(clock, 0)
        event = figures["event with 6 arguments, above one clock read: func"]
        self.assertEqual(event["unit"], "ns")
        self.assertAlmostEqual(event["value"], rows["event", "entry", "func", "jump"]["ns"] - clock, 2)
        latency = rows["latency", "exit", "push", "jump"]["ns"]
        self.assertAlmostEqual(figures["entry to return latency, above two clock reads: push"]["value"],
                               latency - 2 * clock, 2)
        uretprobe = rows["return", "exit", "push", "kernel"]["ns"]
        if uretprobe is not None:
            ratio = figures["entry to return latency, against the kernel's uretprobe: push"]
            self.assertAlmostEqual(ratio["value"] / (uretprobe / latency), 1, 2)
            self.assertEqual(ratio["unit"], "times cheaper")

    def test_no_victim_is_left(self):
        status, output, errors, left = bench("--quick", "loop")
        self.assertEqual(status, 0, errors + output)
        self.assertIn("loop ", output)
        self.assertEqual(left, [])

    def test_traps_are_measured_if_wanted(self):
        status, output, errors, _ = bench("--quick", "--allow-traps", "--json", "push")
        self.assertEqual(status, 0, errors + output)
        rows = {line["method"]: line for line in map(json.loads, output.splitlines()) if line["type"] == "bench"}
        self.assertEqual(set(rows), {"jump", "kernel", "simulate", "slot", "step"})
        for method in ("simulate", "slot", "step"):
            self.assertIsNotNone(rows[method]["ns"], rows[method])
            self.assertGreater(rows[method]["ns"], rows["jump"]["ns"])

    def test_what_another_processor_has_is_told(self):
        absent = "endbr64" if os.uname().machine == "aarch64" else "bti-entry"
        status, output, errors, _ = bench("--quick", "--json", absent)
        self.assertEqual(status, 0, errors + output)
        self.assertIn(f"{absent}: there is no such site on this processor", errors)
        self.assertEqual([line for line in output.splitlines() if json.loads(line)["type"] == "bench"], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)

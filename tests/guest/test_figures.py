"""What a hit costs, in instructions: in a guest whose clock ticks once for each. So the figures are the same on every
machine, and more than the aim is a failure.

usage: test_figures.py TRAPLESS
"""
import json
import os
import subprocess
import sys
import unittest

TRAPLESS = os.path.abspath(sys.argv.pop(1))
TIMEOUT_S = 280
CASES = ["nop", "push", "ret", "func", "bti-entry"]
JUMP_MAX = 14  # instructions added to a call that is counted
TIMES = {"push": 120, "ret": 70}  # fewer than the cheapest that the kernel's uprobe is had for: perf's own event


class Figures(unittest.TestCase):
    def test_a_counted_entry_adds_few_instructions(self):
        done = subprocess.run([TRAPLESS, "bench", "--quick", "--json", *CASES], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        lines = [line for line in map(json.loads, done.stdout.splitlines()) if line["type"] == "bench"]
        figures = {(line["case"], line["method"]): line["ns"] for line in lines}
        self.assertEqual(set(figures), {(case, method) for case in CASES for method in ("jump", "kernel")})
        print(os.uname().release, figures, file=sys.stderr)
        for case in CASES:
            self.assertLessEqual(round(figures[case, "jump"], 1), JUMP_MAX, case)
        for case, times in TIMES.items():
            self.assertGreater(figures[case, "kernel"], times * figures[case, "jump"], case)


if __name__ == "__main__":
    unittest.main(verbosity=2)

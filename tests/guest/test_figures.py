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
MACHINE = os.uname().machine
CASES = {"aarch64": ["ret", "func", "bti-entry"], "riscv64": ["ret", "cret", "func"]}[MACHINE]
SIMULATED = {"aarch64": ["nop", "push"], "riscv64": ["nop", "cnop"]}[MACHINE]
METHODS, TRAPS = ["jump", "kernel"], ["simulate", "slot", "step"]
JUMP_MAX = {"aarch64": 14, "riscv64": 16}[MACHINE]  # instructions added to a call that is counted
# Fewer than the cheapest that the kernel's uprobe is had for: perf's own event.
TIMES = {"aarch64": {"push": 120, "ret": 70}, "riscv64": {"cnop": 115, "ret": 75}}[MACHINE]
HALF = {"aarch64": 0.505, "riscv64": 0.51}[MACHINE]  # what the handler does is there once in both (bench/README.md)


class Figures(unittest.TestCase):
    def measured(self, cases, methods, *options):
        """{(case, method): instructions added to a call}; each of them must have been measured."""
        done = subprocess.run([TRAPLESS, "bench", "--quick", "--json", *options, *cases], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        lines = [line for line in map(json.loads, done.stdout.splitlines()) if line["type"] == "bench"]
        figures = {(line["case"], line["method"]): line["ns"] for line in lines}
        self.assertEqual(set(figures), {(case, method) for case in cases for method in methods})
        print(os.uname().release, figures, file=sys.stderr)
        for case in cases:
            self.assertLessEqual(round(figures[case, "jump"], 1), JUMP_MAX, case)
        for case in set(cases) & set(TIMES):
            self.assertGreater(figures[case, "kernel"], TIMES[case] * figures[case, "jump"], case)
        return figures

    def test_a_counted_entry_adds_few_instructions(self):
        self.measured(CASES, METHODS)

    def test_what_is_simulated_costs_half_of_what_is_stepped(self):
        figures = self.measured(SIMULATED, METHODS + TRAPS, "--allow-traps")
        for case in SIMULATED:
            self.assertLess(figures[case, "simulate"], HALF * figures[case, "step"], case)


if __name__ == "__main__":
    unittest.main(verbosity=2)

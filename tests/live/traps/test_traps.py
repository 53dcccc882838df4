"""Signal rungs through the command: which site gets which, and a program that takes SIGTRAP away while they are in.

usage: test_traps.py TRAPLESS HARD [TEST...]
"""
import json
import os
import platform
import subprocess
import sys
import unittest

TRAPLESS, HARD = (os.path.abspath(word) for word in sys.argv[1:3])
del sys.argv[1:3]
CALLS = 1000
TIMEOUT_S = 60 * int(os.environ.get("TL_SLOW", "1"))
# Where a jump always fits one instruction, it is memory in reach that is missing; then only what a simulator does
# alone is left: a branch at the exit, not a return. By a rung's name there would be no jumps for the hooks that
# see SIGTRAP taken away.
JUMPS_FIT = platform.machine() in ("aarch64", "riscv64")
START = ("full",) if JUMPS_FIT else ()
TRAPS = ("--allow-traps", "--return", "exit") if JUMPS_FIT else ("--allow-traps",)
METHODS = {"hard_tail": "simulate"} if JUMPS_FIT else {"hard_push": "simulate", "hard_load": "slot"}
# riscv64 moves the stack pointer by an addition, which can't fault; a push that faults needs a slot. A slot of step
# never branches back, so there it may lie out of a branch's reach.
PUSH_ALONE = "simulate" if platform.machine() == "riscv64" else "refused"
NEED_MEMORY = ("jump", "slot") if platform.machine() == "riscv64" else ("jump", "slot", "step")


class Traps(unittest.TestCase):
    def victim(self, *words):
        process = subprocess.Popen([HARD, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        line = process.stdout.readline()
        self.assertEqual(process.stdout.readline() if line == "filling\n" else line, "ready\n")
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()

    def tell(self, process, letters):
        for letter in letters:
            process.stdin.write(letter + "\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), "ready\n", (letter, process.poll()))

    def run_with(self, process, letters, command, *words):
        """The command's probe and count lines, while the victim does what the letters say."""
        words = [TRAPLESS, command, "--json", "-p", str(process.pid), *words]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
            lines = []
            try:
                for line in run.stdout:  # the probes' lines come when they are placed
                    lines.append(json.loads(line))
                    if lines[-1]["type"] == "probe" and letters:
                        pending = sum(1 for word in words if word.startswith("hard_"))
                        if sum(1 for o in lines if o["type"] == "probe") == pending:
                            self.tell(process, letters)
                            letters = ""
                            process.stdin.write("q\n")
                            process.stdin.flush()
            finally:
                if run.poll() is None and letters:
                    run.kill()
            self.assertEqual(run.wait(TIMEOUT_S), 0, run.stderr.read())
        self.assertEqual(process.wait(TIMEOUT_S), 0)
        return lines

    def methods(self, lines):
        return {o["probe"].rsplit(":", 1)[1]: o["method"] for o in lines if o["type"] == "probe"}

    def hits(self, lines):
        return {o["probe"].rsplit(":", 1)[1]: o["hits"] for o in lines if o["type"] == "count"}

    def times(self, lines):
        return {o["probe"].rsplit(":", 1)[1]: o["count"] for o in lines if o["type"] == "latency"}

    def test_each_rung_by_name(self):
        for method in ("simulate", "slot", "step"):
            with self.subTest(method=method):
                lines = self.run_with(self.victim(), "c", "count", "--method", method, "hard_push")
                self.assertEqual(self.methods(lines), {"hard_push": method})
                self.assertEqual(self.hits(lines), {"hard_push": CALLS})

    def test_what_has_no_simulator_is_refused_by_name(self):
        lines = self.run_with(self.victim(), "c", "count", "--method", "simulate", "hard_push", "hard_load")
        self.assertEqual(self.methods(lines), {"hard_push": "simulate", "hard_load": "refused"})

    def test_explain_says_what_a_run_does(self):
        kept = ["jump", "jump"]
        for words, methods in (((), kept if JUMPS_FIT else ["refused", "refused"]),
                               (("--allow-traps",), kept if JUMPS_FIT else ["simulate", "slot"]),
                               (("--method", "simulate"), ["simulate", "refused"]),
                               (("--method", "slot"), ["slot", "slot"]), (("--method", "step"), ["step", "step"])):
            run = subprocess.run([TRAPLESS, "explain", "--json", HARD, *words, "hard_push", "hard_load"],
                                 capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
            sites = [json.loads(line) for line in run.stdout.splitlines()]
            said = {o["function"]: o["method"] for o in sites if o["type"] == "site"}
            self.assertEqual([said["hard_push"], said["hard_load"]], methods, words)

    def test_auto_takes_them_only_where_allowed(self):
        lines = self.run_with(self.victim(*START), "c", "latency", *TRAPS, *METHODS)
        self.assertEqual(self.methods(lines), METHODS)
        self.assertEqual(self.times(lines), dict.fromkeys(METHODS, CALLS))
        victim = self.victim(*START)
        run = subprocess.run([TRAPLESS, "latency", "-p", str(victim.pid), "-d", "1", *METHODS],
                             capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertNotEqual(run.returncode, 0, run.stdout)

    def test_without_memory_in_reach_only_what_needs_none_is_probed(self):
        victim = self.victim("full")
        for method in NEED_MEMORY:
            run = subprocess.run([TRAPLESS, "count", "-p", str(victim.pid), "-d", "0.5", "--method", method,
                                  "hard_alone"], capture_output=True, text=True, timeout=TIMEOUT_S,
                                 check=False)
            self.assertEqual(run.returncode, 3, run.stdout)
            self.assertIn("no free memory lies within reach", run.stderr)
        lines = self.run_with(victim, "c", "count", "--method", "simulate", "hard_alone", "hard_push")
        self.assertEqual(self.methods(lines), {"hard_alone": "simulate", "hard_push": PUSH_ALONE})
        self.assertEqual(self.hits(lines), {name: CALLS for name, way in self.methods(lines).items() if way != "refused"})

    def test_a_program_that_takes_sigtrap_is_seen_before(self):
        for letter in "hbm":
            with self.subTest(letter=letter):
                victim = self.victim(*START)
                lines = self.run_with(victim, "c" + letter, "latency", *TRAPS, *METHODS)
                self.assertEqual(self.methods(lines), METHODS)
                # Closed before the calls that follow at once.
                self.assertEqual(self.times(lines), dict.fromkeys(METHODS, CALLS))

    def test_a_followed_child_that_takes_sigtrap_is_seen_before(self):
        lines = self.run_with(self.victim(*START), "ckc", "latency", "-f", *TRAPS, *METHODS)
        self.assertEqual(self.methods(lines), METHODS)
        self.assertEqual(self.times(lines), dict.fromkeys(METHODS, 2 * CALLS))

    def test_faults_in_slots_are_shown_at_the_instruction(self):
        victim = self.victim("faults")
        if JUMPS_FIT:  # by a rung's name there are no jumps for the guards of the handler
            run = subprocess.run([TRAPLESS, "latency", "-p", str(victim.pid), "-d", "1", "--method", "slot",
                                  "hard_load"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
            self.assertEqual(run.returncode, 3, run.stdout)
            self.assertIn("could not be shown at its own address", run.stderr)
            self.tell(victim, "cfc")
            return
        lines = self.run_with(victim, "cfc", "latency", "--allow-traps", "hard_load")
        self.assertEqual(self.methods(lines), {"hard_load": "slot"})


if __name__ == "__main__":
    unittest.main()

"""What other machines and programs have: addresses of more than 48 bits, tagged memory, 32-bit programs.

usage: test_machines.py TRAPLESS WIDE TAGGED [TEST...]
"""
import contextlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

TAGGED = os.path.abspath(sys.argv.pop(3))
WIDE = os.path.abspath(sys.argv.pop(2))
TRAPLESS = os.path.abspath(sys.argv.pop(1))
SLOW = int(os.environ.get("TL_SLOW", "1"))
TIMEOUT_S = 12 * SLOW
CALLS = 500
TRIES = 20  # a busy machine may not stop the program in time
METHODS = ("jump", "simulate", "slot", "step")
BITS = 48  # of addresses that a program gets without asking for more


def run(*words, **options):
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S,
                          check=False, **options)


@contextlib.contextmanager
def started(*words):
    """A program that says when it is ready and waits for a line."""
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        said = process.stdout.readline()
        assert said == "ready\n", f"{words}: {said!r}"
        yield process
    finally:
        process.kill()
        process.wait()


class Wide(unittest.TestCase):
    """A program whose text lies above 2^48: Linux has such addresses where a program asks for them."""

    def counted(self, method, *probes):
        """{function: its line}, of a run whose own results must be right."""
        with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
            done = run(TRAPLESS, "count", "--json", "-o", out.name, "--method", method, *probes, "--", WIDE, "literal",
                       str(CALLS))
            lines = [json.loads(line) for line in out]
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "wrong 0"), done.stderr)
        return lines

    def test_the_program_lies_there(self):
        addr = json.loads(run(TRAPLESS, "list", WIDE, "load_literal", "--json").stdout.splitlines()[0])["addr"]
        self.assertGreater(int(addr, 16), 1 << BITS)
        self.assertEqual(run(WIDE, "literal", "1").stdout.strip(), "wrong 0")

    def test_each_call_is_counted_by_each_method(self):
        for method in METHODS:
            lines = self.counted(method, "load_literal")
            self.assertEqual([line["method"] for line in lines if line["type"] == "probe"], [method])
            self.assertEqual([line["hits"] for line in lines if line["type"] == "count"], [CALLS], method)

    def test_all_functions_are_probed_at_once(self):
        lines = self.counted("jump", "*")
        self.assertGreater(lines[-1]["by_method"]["jump"], 500)
        self.assertGreater(lines[-1]["hits"], CALLS)

    def test_an_event_has_its_arguments(self):
        with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
            done = run(TRAPLESS, "trace", "--json", "-o", out.name, "load_literal", "--", WIDE, "literal", "7")
            events = [line for line in map(json.loads, out) if line["type"] == "event"]
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(events), 7)


class Tagged(unittest.TestCase):
    """Memory whose pointers are checked against tags (MTE). The machine must have it: virt,mte=on."""

    def results(self, mode, method, *probes):
        """The lines of a count that is attached when the memory has its tags."""
        with started(TAGGED, mode, str(CALLS)) as process:
            for _ in range(TRIES):
                command = subprocess.Popen([TRAPLESS, "count", "--json", "--method", method, "-p", str(process.pid),
                                            *probes], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                lines = [json.loads(line) for line in (command.stdout.readline() for _ in probes) if line]
                if lines or "try again" not in command.communicate()[1]:
                    break
            said = process.communicate("go\n", timeout=TIMEOUT_S)[0]
            self.assertEqual((process.returncode, said.strip()), (0, "wrong 0"), method)
            self.assertTrue(lines, command.stderr)
            return lines + [json.loads(line) for line in command.communicate(timeout=TIMEOUT_S)[0].splitlines()]

    def test_pushes_on_a_tagged_stack_are_counted_and_right(self):
        for method in ("jump", "slot", "step"):
            lines = self.results("stack", method, "tagged_push", "tagged_load")
            self.assertEqual([line["method"] for line in lines if line["type"] == "probe"], [method] * 2)
            self.assertEqual([line["hits"] for line in lines if line["type"] == "count"][-2:], [CALLS] * 2, method)

    def test_nothing_is_simulated_there(self):
        lines = self.results("stack", "simulate", "tagged_push")
        self.assertEqual([line["method"] for line in lines if line["type"] == "probe"], ["refused"])

    def test_a_wrong_tag_faults_at_its_own_address(self):
        for method in ("jump", "slot", "step"):
            lines = self.results("fault", method, "tagged_load")
            placed = [line["method"] for line in lines if line["type"] == "probe"]
            self.assertIn(placed, [["jump"]] if method == "jump" else [[method], ["refused"]])


class Foreign(unittest.TestCase):
    """A program of 32 bits: Linux runs it beside the others, and it is refused."""

    CODE = (0xe3a0701d, 0xef000000, 0xeafffffc)  # 1: mov r7, #29 (pause); svc #0; b 1b
    BASE = 0x10000

    def program(self):
        """An ELF file of one segment."""
        code = struct.pack("<3I", *self.CODE)
        size = 52 + 32 + len(code)
        head = struct.pack("<16sHHIIIIIHHHHHH", b"\x7fELF\x01\x01\x01", 2, 40, 1, self.BASE + 84, 52, 0, 0x05000200, 52,
                           32, 1, 0, 0, 0)
        return head + struct.pack("<8I", 1, 0, self.BASE, self.BASE, size, size, 5, 0x10000) + code

    def test_it_is_refused_in_a_sentence(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "program")
            with open(program, "wb") as file:
                file.write(self.program())
            os.chmod(program, 0o755)
            process = subprocess.Popen([program])
            try:
                self.assertIsNone(process.poll(), "this kernel runs no 32-bit programs")
                done = run(TRAPLESS, "count", "-p", str(process.pid), "main")
                self.assertIn("32-bit", done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertNotEqual(done.returncode, 0)
                self.assertIsNone(process.poll(), "it goes on")
            finally:
                process.kill()
                process.wait()
            done = run(TRAPLESS, "count", "main", "--", program)
            self.assertIn("32-bit", done.stderr)
            self.assertNotEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""Two sites that a kernel's uprobe may get wrong, under both tools side by side. What the kernel does is
shown, not judged: it differs between architectures and kernels. Trapless must leave the program's results alone.

usage: test_beside.py TRAPLESS PROGRAM
"""
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(2))
TRAPLESS = os.path.abspath(sys.argv.pop(1))
TRACING = "/sys/kernel/tracing"
CALLS = 1000
ENDLESS_S = 10  # of calls that take some milliseconds
TIMEOUT_S = 60


def run(*words, timeout=TIMEOUT_S):
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False)


def addr_of(function):
    return int(json.loads(run(TRAPLESS, "list", PROGRAM, function, "--json").stdout.splitlines()[0])["addr"], 16)


@contextlib.contextmanager
def uprobe(addr):
    """The kernel's own, at an address that is also the file's offset."""
    def write(path, text):
        with open(f"{TRACING}/{path}", "w", encoding="ascii") as file:
            file.write(text)
    write("uprobe_events", f"p:beside/site {PROGRAM}:{addr:#x}\n")
    try:
        write("events/beside/site/enable", "1")
        yield
        write("events/beside/site/enable", "0")
    finally:
        write("uprobe_events", "")


def under_the_kernel(mode, addr):
    """What the program says with a uprobe there."""
    try:
        with uprobe(addr):
            return run(PROGRAM, mode, str(CALLS), timeout=ENDLESS_S).stdout.strip()
    except subprocess.TimeoutExpired:
        return f"not done after {ENDLESS_S} s"
    except OSError as error:
        return f"refused: {error.strerror}"


class Beside(unittest.TestCase):
    def counted(self, mode, *probes, method="jump"):
        """(status, what the program said, JSON lines, standard error) of a counted run."""
        with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
            done = run(TRAPLESS, "count", "--json", "-o", out.name, "--method", method, *probes, "--", PROGRAM, mode,
                       str(CALLS))
            return done.returncode, done.stdout.strip(), [json.loads(line) for line in out], done.stderr

    def test_a_literal_is_read_right(self):
        self.assertEqual(run(PROGRAM, "literal", str(CALLS)).stdout.strip(), "wrong 0")
        for method in ("jump", "slot", "simulate"):
            status, said, lines, errors = self.counted("literal", "load_literal", method=method)
            self.assertEqual(status, 0, errors)
            self.assertEqual(said, "wrong 0", method)
            self.assertEqual([line["hits"] for line in lines if line["type"] == "count"], [CALLS], method)
        print(f"{os.uname().release}: load of a literal: trapless: wrong 0; the kernel's uprobe: "
              f"{under_the_kernel('literal', addr_of('load_literal'))}", file=sys.stderr)

    def test_between_an_exclusive_pair_there_is_no_probe(self):
        self.assertEqual(run(PROGRAM, "exclusive", str(CALLS)).stdout.strip(), "wrong 0")
        for site in ("exclusive_add+4", "exclusive_add+8"):
            for method in ("jump", "slot", "step"):
                _, said, lines, errors = self.counted("exclusive", site, method=method)
                self.assertIn(said, ("wrong 0", ""), errors)
                self.assertEqual([line for line in lines if line["type"] == "probe" and line["method"] != "refused"],
                                 [], errors)
                self.assertIn("exclusive", errors + json.dumps(lines))
        print(f"{os.uname().release}: between an exclusive pair: trapless: refused; the kernel's uprobe: "
              f"{under_the_kernel('exclusive', addr_of('exclusive_add') + 4)}", file=sys.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)

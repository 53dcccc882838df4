"""Probes in programs made by Go, static and with C in them: goroutines that move between threads, stacks
that grow inside probed functions.

usage: test_go.py TRAPLESS
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

TRAPLESS = os.path.abspath(sys.argv.pop(1))
HERE = os.path.dirname(os.path.abspath(__file__))
TIMEOUT_S = 60
ROUNDS = 3
# Functions that check their stack: nothing stands in the way of a jump.
SURE = ["main.grow", "main.pass", "main.recovers", "main.panics", "main.huge", "main.choose", "main.work",
        "main.round"]


def build(directory, extra, cgo):
    source = os.path.join(directory, extra)
    os.mkdir(source)
    for name in ("goroutines.go", f"extra_{extra}.go"):
        shutil.copy(os.path.join(HERE, name), source)
    program = os.path.join(directory, f"goroutines_{extra}")
    environment = dict(os.environ, GOFLAGS="-mod=mod", GOPROXY="off", GO111MODULE="off",
                       GOCACHE=os.path.join(directory, "cache"), CGO_ENABLED=str(int(cgo)))
    subprocess.run(["go", "build", "-o", program, "."], cwd=source, env=environment, check=True,
                   timeout=240)
    return program


class Program:
    def __init__(self, path):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, bufsize=1)
        assert self.process.stdout.readline().startswith("ready")
        self.pid = self.process.pid

    def round(self):
        self.process.stdin.write("round\n")
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise AssertionError("the program has ended: " + self.errors.read(2000))
        return json.loads(line)

    def leave(self):
        self.process.stdin.write("\n")
        return self.process.wait(TIMEOUT_S)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.errors.close()


class Case:
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="trapless-test-")
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        cls.path = build(cls.directory, cls.extra, cls.cgo)

    def start(self):
        program = Program(self.path)
        self.addCleanup(program.end)
        return program

    def probed(self, command, program, *words):
        """The command at work: its first line comes when the probes are placed."""
        errors = tempfile.TemporaryFile("w+")
        self.addCleanup(errors.close)
        child = subprocess.Popen([TRAPLESS, command, "-p", str(program.pid), "--json", *words],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                                 text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        child.first = child.stdout.readline()
        if not child.first:
            errors.seek(0)
            self.fail(errors.read())
        child.errors = errors
        return child

    def finish(self, child):
        child.send_signal(signal.SIGINT)
        text = child.first + child.stdout.read()
        status = child.wait(TIMEOUT_S)
        child.errors.seek(0)
        self.assertEqual(status, 0, child.errors.read())
        return [json.loads(line) for line in text.splitlines()]

    def rounds(self, *probes):
        """All that the command says over some rounds, and what the program itself counted."""
        program = self.start()
        bare = program.round()
        child = self.probed("count", program, *probes)
        wanted = {}
        for _ in range(ROUNDS):
            answer = program.round()
            self.assertEqual(answer["sum"], bare["sum"])
            for name, calls in answer["calls"].items():
                wanted[name] = wanted.get(name, 0) + calls
            for name, calls in answer["unfinished"].items():
                wanted["unfinished " + name] = wanted.get("unfinished " + name, 0) + calls
        objects = self.finish(child)
        self.assertEqual(program.round()["sum"], bare["sum"])
        self.assertEqual(program.leave(), 0)
        return objects, wanted

    def hits_of(self, objects, names):
        functions = {o["probe"]: o["function"].split(", ")[0] for o in objects
                     if o["type"] == "probe" and o["method"] != "refused"}
        counts = [o for o in objects if o["type"] == "count"]
        self.assertEqual(sum(o["dropped"] for o in counts), 0)
        return {functions[o["probe"]]: o["hits"] for o in counts
                if functions.get(o["probe"]) in names}

    def test_functions_are_counted_exactly(self):
        objects, wanted = self.rounds("main.*")
        hits = self.hits_of(objects, wanted)
        self.assertLessEqual(set(SURE), set(hits))
        self.assertEqual(hits, {name: wanted[name] for name in hits})

    def test_returns_are_counted_exactly(self):
        objects, wanted = self.rounds(f"uretprobe:{self.path}:main.*")
        hits = self.hits_of(objects, wanted)
        self.assertLessEqual(set(SURE), set(hits))
        wanted["main.panics"] -= wanted["unfinished main.panics"]
        self.assertEqual(hits, {name: wanted[name] for name in hits})

    def test_all_functions_of_the_runtime_may_be_probed(self):
        objects, wanted = self.rounds("*")
        hits = self.hits_of(objects, wanted)
        self.assertLessEqual(set(SURE), set(hits))
        self.assertEqual(hits, {name: wanted[name] for name in hits})
        methods = [o["method"] for o in objects if o["type"] == "probe"]
        self.assertGreater(methods.count("jump"), len(methods) * 3 // 4)
        # Where no stack may be left, what needs some is refused.
        self.assertTrue(any(o.get("reason", "").startswith("a Go function without a stack check")
                            for o in objects if o["type"] == "probe"))

    def test_all_returns_of_the_runtime_may_be_probed(self):
        objects, wanted = self.rounds(f"uretprobe:{self.path}:*")
        hits = self.hits_of(objects, wanted)
        self.assertLessEqual(set(SURE), set(hits))
        wanted["main.panics"] -= wanted["unfinished main.panics"]
        self.assertEqual(hits, {name: wanted[name] for name in hits})

    def test_arguments_are_those_of_gos_registers(self):
        program = self.start()
        child = self.probed("trace", program, "main.panics")
        calls = program.round()["calls"]["main.panics"]
        objects = self.finish(child)
        events = [o for o in objects if o["type"] == "event"]
        self.assertEqual(len(events) + objects[-1]["dropped"], calls)
        self.assertTrue(events)
        # The only argument is below 1000, and rdi, the first of C's, is not.
        self.assertLess(max(int(str(o["args"][0]), 0) for o in events), 1000)

    def refused(self, command, *words):
        program = self.start()
        result = subprocess.run([TRAPLESS, command, "-p", str(program.pid), "-d", "1", *words],
                                stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=TIMEOUT_S, check=False)
        self.assertEqual(result.returncode, 3, result.stderr)
        program.round()
        self.assertEqual(program.leave(), 0)
        return result.stderr

    def test_an_entry_is_not_paired_with_a_return(self):
        self.assertIn("threads can't be told apart", self.refused("latency", "main.grow"))

    def test_breakpoints_are_not_set(self):
        """Go's runtime handles every signal, SIGTRAP too."""
        for method in ("slot", "step"):
            self.assertIn("the program handles, ignores or blocks SIGTRAP",
                          self.refused("count", "--method", method, "main.grow"))

    def test_no_return_address_is_replaced(self):
        self.assertIn("a return address may not be replaced",
                      self.refused("count", "--return", "trampoline",
                                   f"uretprobe:{self.path}:main.grow"))


@unittest.skipUnless(shutil.which("go"), "no Go here")
class Static(Case, unittest.TestCase):
    extra, cgo = "static", False


@unittest.skipUnless(shutil.which("go") and shutil.which("gcc"), "no Go or no C compiler here")
class Cgo(Case, unittest.TestCase):
    extra, cgo = "cgo", True


if __name__ == "__main__":
    unittest.main()

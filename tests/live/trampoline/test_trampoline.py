"""Replaced return addresses while frames wait: probes that go, controllers that die, unwinders that come.

usage: test_trampoline.py TRAPLESS PENDING PENDING_STATIC PENDING_HIDDEN LIBRARY STEPS [TEST...]
"""
import ctypes
import json
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "returns"))
from probed import SLOW, Case, Report, returns_of, run, text_differences  # noqa: E402 (the folder beside)

TRAPLESS, PENDING, STATIC, HIDDEN, LIBRARY, STEPS = (os.path.abspath(word) for word in sys.argv[1:7])
del sys.argv[1:7]
Case.trapless = TRAPLESS
WAY = ("--return", "trampoline")
END_S = 20 * SLOW  # for a program or the command to end
FUNCTIONS = ("leaf", "holds", "suspends", "throws", "catches", "wide", "catches_wide", "forks", "early_stores",
             "early_returns")
OTHER_UNWINDERS = ("libunwind.so.8", "libunwind.so.1")
# What has returned when the program is at "inside", and at its end.
INSIDE = {"main_stack": {}, "coroutines": {}, "exceptions": {}, "exceptions_again": {"catches": 20},
          "registers": {}}
END = {
    "main_stack": {"leaf": 2, "holds": 27},
    "coroutines": {"leaf": 4, "suspends": 4},
    "exceptions": {"catches": 2, "throws": 0},
    "exceptions_again": {"catches": 20, "catches_wide": 1, "wide": 0, "throws": 0},
    "registers": {"early_stores": 0, "early_returns": 0},
    "children": {"forks": 420},
}


class Victim:
    """The program, from one line to the next."""

    def __init__(self, case, *words):
        self.process = case.child(*words)
        self.case = case
        self.await_line()

    def await_line(self):
        line = self.process.stdout.readline()
        self.case.assertTrue(line.startswith("ready"), (line, self.process.poll()))
        return line

    def go(self):
        self.process.stdin.write("go\n")

    def goes_well(self):
        """To its end, whatever it waits for."""
        try:
            self.process.stdin.write("go\n" * 4)
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.stdin = None
        self.process.stdout.read()
        self.case.assertEqual(self.process.wait(END_S), 0)


# By processor: landing pads, a probe's bytes, a breakpoint.
CODE = {"x86_64": ((b"\xf3\x0f\x1e\xfa",), 5, b"\xcc"),
        "aarch64": ((b"\x5f\x24\x03\xd5", b"\x3f\x23\x03\xd5"), 4, b"\x00\x00\x20\xd4"),
        "riscv64": ((b"\x17\x00\x00\x00",), 4, b"\x02\x90")}
PADS, PATCH_SIZE, BREAKPOINT = CODE[os.uname().machine]


def write_text(case, pid, addr, data):
    """As a debugger does; some kernels let nobody else."""
    libc = ctypes.CDLL(None, use_errno=True)
    seize, interrupt, detach = 0x4206, 0x4207, 17
    case.until(lambda: libc.ptrace(seize, pid, 0, 0) == 0)  # it may be the command's for a moment
    libc.ptrace(interrupt, pid, 0, 0)
    os.waitpid(pid, 0)
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(addr)
        memory.write(data)
    libc.ptrace(detach, pid, 0, 0)


def find_fde(pid):
    """Where the probe on libgcc's look-up lies, behind its landing pad, and the file's bytes there."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        line = next(line for line in maps if "libgcc_s" in line)
    path, base = line.split(None, 5)[5].strip(), int(line.split("-", 1)[0], 16)
    found = json.loads(run(TRAPLESS, "list", path, "_Unwind_Find_FDE", "--json").stdout.splitlines()[0])
    vaddr = int(found["addr"], 16)
    with open(path, "rb") as file:
        file.seek(vaddr)  # text lies in libgcc_s where it is mapped
        code = file.read(16)
    skip = 4 if code.startswith(PADS) else 0
    return base + vaddr + skip, code[skip:skip + PATCH_SIZE]


def holds(pid, program):
    """Whether the program's text differs from its file: it holds probes."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            fields = line.split(None, 5)
            if len(fields) < 6 or "x" not in fields[1] or fields[5].strip() != program:
                continue
            start, end = (int(part, 16) for part in fields[0].split("-"))
            with open(program, "rb") as file:
                file.seek(int(fields[2], 16))
                want = file.read(end - start)
            memory.seek(start)
            return memory.read(len(want)) != want
    return False


class Pending(Case):
    def probes(self, program):
        return returns_of(program, *FUNCTIONS)

    def hits(self, report):
        return {probe.rsplit(":", 1)[1]: count["hits"] for probe, count in report.counts.items()
                if count["hits"]}

    def attach(self, victim, program, *words):
        return self.attached("count", victim.process.pid, self.probes(program), *WAY, *words)

    def inside(self, program, mode):
        """A victim whose frames wait, and the command that probes it."""
        victim = Victim(self, program, mode)
        command = self.attach(victim, program)
        victim.go()
        self.assertIn("inside", victim.await_line())
        return victim, command

    def again_and_on(self, victim, program):
        """Old memory is taken away by the next attach; then the program goes on."""
        for _ in range(2):
            self.ended(self.attach(victim, program))
        self.assertEqual(text_differences(victim.process.pid), 0)
        victim.goes_well()

    def test_counts_of_whole_runs(self):
        for program in (PENDING, STATIC):
            for mode, expected in END.items():
                with self.subTest(program=program, mode=mode):
                    victim = Victim(self, program, mode)
                    command = self.attach(victim, program, "--no-follow")
                    victim.goes_well()
                    errors = command.communicate(timeout=END_S)[1]
                    self.assertEqual(command.returncode, 0, errors)
                    report = Report(self.read(command.out))
                    for name, count in expected.items():
                        self.assertEqual(report.hits("uretprobe", name), count, name)
                        self.assertEqual(report.dropped("uretprobe", name), 0, name)

    def probes_go(self, modes):
        for program in (PENDING, STATIC):
            for mode in modes:
                with self.subTest(program=program, mode=mode):
                    victim, command = self.inside(program, mode)
                    report = self.ended(command)
                    self.assertEqual(self.hits(report), INSIDE[mode])
                    self.assertEqual(text_differences(victim.process.pid), 0)
                    victim.goes_well()

    def test_probes_go_while_frames_wait(self):
        self.probes_go([mode for mode in INSIDE if mode != "registers"])

    def test_probes_go_while_return_addresses_are_in_registers(self):
        self.probes_go(["registers"])

    def test_memory_is_taken_away_while_frames_wait(self):
        for program in (PENDING, STATIC):
            for mode in INSIDE:
                with self.subTest(program=program, mode=mode):
                    victim, command = self.inside(program, mode)
                    self.ended(command)
                    self.again_and_on(victim, program)

    def test_a_controller_dies_while_frames_wait(self):
        for program in (PENDING, STATIC):
            for mode in INSIDE:
                with self.subTest(program=program, mode=mode):
                    victim, command = self.inside(program, mode)
                    command.kill()
                    command.wait()
                    victim.goes_well()

    def test_a_dead_controllers_work_is_put_back_while_frames_wait(self):
        for mode in INSIDE:
            with self.subTest(mode=mode):
                victim, command = self.inside(PENDING, mode)
                command.kill()
                command.wait()
                done = run(TRAPLESS, "detach", "-p", str(victim.process.pid))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.again_and_on(victim, PENDING)

    def test_a_dead_controllers_work_is_replaced_while_frames_wait(self):
        for mode in INSIDE:
            with self.subTest(mode=mode):
                victim, command = self.inside(PENDING, mode)
                command.kill()
                command.wait()
                self.again_and_on(victim, PENDING)


class Steps(Case):
    """A thread at each instruction from a function's entry through our code to where it stores its return address."""
    COUNT = 170  # threads: more than there are instructions

    @staticmethod
    def addresses(probe):
        """Of what leads to the function, its own, and of what it calls."""
        names = ("lands", "stores_at_once", "throws_now")
        listed = {}
        for name in names:
            line = run(TRAPLESS, "list", PENDING, name, "--json").stdout.splitlines()[0]
            listed[name] = int(json.loads(line)["addr"], 16)
        bias = int(probe["addr"], 16) - listed["stores_at_once"]
        return [hex(listed[name] + bias) for name in names]

    def placed(self, how):
        """The victim, its threads placed, and the command."""
        victim = Victim(self, PENDING, "steps", str(self.COUNT))
        pid = victim.process.pid
        self.addCleanup(lambda: victim.process.poll() is None and os.kill(pid, signal.SIGCONT))
        command = self.attached("count", pid, returns_of(PENDING, "stores_at_once"), *WAY)
        probe = Report(self.read(command.out)).one(
            {json.loads(line)["probe"]: json.loads(line) for line in self.read(command.out).splitlines()}, "uretprobe",
            "stores_at_once")
        self.assertEqual(probe["return_way"], "trampoline", probe)
        steps = self.child(STEPS, str(pid), *self.addresses(probe), str(self.COUNT), how)
        self.assertEqual(steps.stdout.readline(), "ready\n")
        victim.go()
        self.assertIn("inside", victim.await_line())
        steps.stdin.write("go\n")
        line = steps.stdout.readline().split()
        if not line and steps.wait(END_S) == 77:
            self.skipTest("no thread can be stepped here")
        reached, instructions = int(line[1]), int(line[3])
        self.assertLess(instructions, self.COUNT - 2)
        self.assertGreater(reached, instructions * 3 // 4)
        return victim, command

    def goes_on(self, victim, how):
        self.assertEqual(text_differences(victim.process.pid), 0)
        if how == "stop":
            os.kill(victim.process.pid, signal.SIGCONT)
        victim.goes_well()

    def test_probes_go(self):
        for how in ("stop", "signal"):
            with self.subTest(how=how):
                victim, command = self.placed(how)
                self.ended(command)
                self.goes_on(victim, how)

    def test_a_dead_controllers_work_is_put_back(self):
        for how in ("stop", "signal"):
            with self.subTest(how=how):
                victim, command = self.placed(how)
                command.kill()
                command.wait()
                done = run(TRAPLESS, "detach", "-p", str(victim.process.pid))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.goes_on(victim, how)


class Unwinders(Case):
    def test_an_unwinder_that_loses_its_probe_ends_it(self):
        """Somebody else's breakpoint at the look-up: what is replaced is put back, and unwinding goes well."""
        victim = Victim(self, PENDING, "exceptions")
        command = self.attached("count", victim.process.pid, returns_of(PENDING, *FUNCTIONS), *WAY)
        victim.go()
        self.assertIn("inside", victim.await_line())
        addr, plain = find_fde(victim.process.pid)
        with open(f"/proc/{victim.process.pid}/mem", "rb", buffering=0) as memory:
            def at_site():
                memory.seek(addr)
                return memory.read(len(plain))
            self.assertNotEqual(at_site(), plain)  # ours is there
            strange = len(BREAKPOINT)
            write_text(self, victim.process.pid, addr, BREAKPOINT)
            self.until(lambda: at_site()[strange:] == plain[strange:])
            self.until(lambda: not holds(victim.process.pid, PENDING))
            write_text(self, victim.process.pid, addr, plain[:strange])
        victim.goes_well()
        errors = command.communicate(timeout=END_S)[1]
        self.assertIn("unwinder", errors + self.read(command.out))

    def test_exceptions_through_what_came_later(self):
        """Frames of two installs on one stack; and of the later one alone. When the controller is late a call is
        missed, never a frame by the unwinder."""
        library = returns_of(os.path.basename(LIBRARY), "later_throws", "later_returns")
        for program in (returns_of(PENDING, "passes", "leaf"), [f"uprobe:{PENDING}:leaf"]):
            victim = Victim(self, PENDING, "library", LIBRARY)
            command = self.attached("count", victim.process.pid, program + library, *WAY)
            victim.goes_well()
            errors = command.communicate(timeout=END_S)[1]
            report = Report(self.read(command.out))
            if len(program) > 1:
                self.assertEqual(report.hits("uretprobe", "passes"), 600, errors)
            self.assertEqual(report.hits("uretprobe" if len(program) > 1 else "uprobe", "leaf"), 200, errors)
            for name, most in (("later_throws", 0), ("later_returns", 100)):
                for count in report.find(report.counts, "uretprobe", name):  # none: it was never in time
                    self.assertLessEqual(count["hits"], most, errors)

    def test_an_unwinder_without_a_name_is_not_risked(self):
        """Linked into a stripped program: it can't be probed, so nothing is replaced."""
        victim = Victim(self, HIDDEN, "exceptions")
        done = run(TRAPLESS, "count", "-p", str(victim.process.pid), *WAY, *returns_of("libc.so.6", "fgets", "write"))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("unwinder", done.stderr)
        victim.goes_well()

    def test_functions_that_ask_who_called_them(self):
        names = ("dlsym", "dlopen", "setjmp", "getcontext", "vfork", "dl_iterate_phdr")
        done = run(TRAPLESS, "explain", *WAY, PENDING, *returns_of("libc.so.6", *names))
        if "no module" in done.stderr:
            victim = Victim(self, PENDING, "exceptions")
            done = run(TRAPLESS, "explain", *WAY, "-p", str(victim.process.pid), *returns_of("libc.so.6", *names))
        self.assertEqual(done.stdout.count("a return address may not be replaced"), len(names) + 1, done.stdout)

    def test_another_unwinder_ends_it(self):
        """A library that unwinds in another way comes: nothing is replaced any more, and all goes well."""
        tried = 0
        for name in OTHER_UNWINDERS:
            try:
                ctypes.CDLL(name)
            except OSError:
                continue
            tried += 1
            victim = Victim(self, PENDING, "another_unwinder", name)
            command = self.attached("count", victim.process.pid, returns_of(PENDING, *FUNCTIONS, "opens"), *WAY)
            victim.go()
            victim.await_line()
            self.until(lambda: not holds(victim.process.pid, PENDING))
            victim.goes_well()
            errors = command.communicate(timeout=END_S)[1]
            self.assertIn("unwinder", errors + self.read(command.out))
        if not tried:
            self.skipTest("no other unwinder is installed")


if __name__ == "__main__":
    unittest.main(verbosity=1)

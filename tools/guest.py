#!/usr/bin/env python3
"""Guests of other architectures: Debian's own kernels under QEMU, with this tree's programs in them.

Packages come through an apt configuration of our own and lie, verified, in $TRAPLESS_CACHE or
~/.cache/trapless. Nothing of it needs root.
"""
import argparse
import functools
import json
import os
import sys

from guestlib import bench, cross, image, isa, machine, packages, suite

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def build_folder(arguments):
    return os.path.abspath(arguments.build or os.path.join(SOURCE, f"build-{arguments.arch}"))


def prepare(arguments, names=(), more=()):
    """The image with the command and what the tests of these names need; built first, if that is wanted."""
    folder = build_folder(arguments)
    if not arguments.no_build:
        cross.build(arguments.arch, folder, arguments.jobs)
    whole = image.Image(arguments.arch)
    whole.add_distribution()
    for name, path in (("/usr/bin/trapless", "trapless"), ("/usr/libexec/trapless/victim", "bench/victim")):
        if os.path.exists(os.path.join(folder, path)):
            whole.add(name, os.path.join(folder, path))
    if names:
        tests = suite.Tests(folder)
        for path in sorted({path for name in names for path in tests.files(name)}):
            whole.add(path, path)
    for name, path in more:
        whole.add(name, path)
    for item in arguments.add:
        name, _, path = item.partition("=")
        whole.add(name if path else "/root/" + os.path.basename(name), path or name)
    return whole.write()


def machine_of(arguments, kernel, archive, **more):
    """A machine as the options want it."""
    return machine.Machine(arguments.arch, kernel, archive, cpus=arguments.cpus, model=arguments.machine,
                           cpu=arguments.cpu, **{"icount": arguments.icount, **more})


def start(arguments):
    return machine_of(arguments, arguments.kernel, prepare(arguments))


def do_fetch(arguments):
    print(f"user space: {packages.user_tree(arguments.arch, arguments.fresh)}")
    for name in arguments.kernels or isa.KERNELS[:2]:
        path, release = packages.kernel(arguments.arch, name, arguments.fresh)
        print(f"kernel {name}: {release} {path}")
    return 0


def do_cross(arguments):
    print(cross.write_file(arguments.arch))
    return 0


def do_build(arguments):
    cross.build(arguments.arch, build_folder(arguments), arguments.jobs)
    return 0


def do_run(arguments):
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    text = words[0] if len(words) == 1 else " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    guest = start(arguments)
    result = guest.run([("run", arguments.timeout, text)])[0]
    print(result.output)
    print(f"guest: {guest.release}: status {result.status} after {result.seconds:.2f} s", file=sys.stderr)
    return result.status


def do_test(arguments):
    folder = build_folder(arguments)
    if not arguments.no_build:
        cross.build(arguments.arch, folder, arguments.jobs)
        arguments.no_build = True
    tests = suite.Tests(folder)
    names = arguments.names or tests.of_suites(arguments.suite)
    unknown = [name for name in names if name not in tests.tests]
    if unknown or not names:
        raise SystemExit(f"guest: no such tests: {' '.join(unknown or arguments.suite)}")
    guest = machine_of(arguments, arguments.kernel, prepare(arguments, names))
    tell = suite.Tap(len(names))
    print(f"# {arguments.arch}, kernel {guest.release}", flush=True)
    guest.run([(name, arguments.limit, tests.job(name, arguments.only)) for name in names], tell)
    return 1 if tell.failed else 0


def do_bench(arguments):
    """Each kernel twice: with an instruction as the clock's tick, and in plain time."""
    whole = prepare(arguments, more=[("/root/measure.py", os.path.join(SOURCE, "tools/guestlib/measure.py"))])
    lines, failed = [], False

    def tell(clock, release, result):
        nonlocal failed
        got, other = bench.lines_of(result.output, clock, release)
        lines.extend(got)
        failed |= result.status != 0
        if arguments.json:
            print("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in got), end="", flush=True)
        if other:
            print(f"guest: {release}, {clock}, {result.name}: status {result.status}\n{other}", file=sys.stderr, flush=True)

    for kernel in arguments.kernels or isa.KERNELS[:2]:
        for clock in arguments.clock or bench.CLOCKS:
            guest = machine_of(arguments, kernel, whole, icount=clock == "instructions")
            guest.run([(part, arguments.timeout, f"exec python3 /root/measure.py {clock} {part}")
                       for part in arguments.part or bench.PARTS], functools.partial(tell, clock, guest.release))
    if not arguments.json:
        print(bench.table(lines), end="")
    return 1 if failed or not lines else 0


def do_shell(arguments):
    start(arguments).shell()
    return 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name, function, text):
        sub = commands.add_parser(name, help=text)
        sub.set_defaults(function=function)
        sub.add_argument("--arch", default="arm64", choices=sorted(isa.ISAS))
        return sub

    sub = command("fetch", do_fetch, "fetch packages and say which kernels are used")
    sub.add_argument("--fresh", action="store_true", help="read the lists again, whatever their age")
    sub.add_argument("kernels", nargs="*", choices=[[], *isa.KERNELS], metavar="KERNEL")
    command("cross", do_cross, "write meson's cross file and print its path")
    for name, function, text in (("build", do_build, "cross build"),
                                 ("run", do_run, "run one command in a guest; its status is ours"),
                                 ("test", do_test, "run tests of the cross build in a guest, as TAP"),
                                 ("bench", do_bench, "what a hit costs, on each kernel and by each clock"),
                                 ("shell", do_shell, "a prompt in a guest")):
        sub = command(name, function, text)
        sub.add_argument("--build", help="build folder; default build-ARCH")
        sub.add_argument("--jobs", type=int, default=os.cpu_count())
        if name == "build":
            continue
        sub.add_argument("--no-build", action="store_true", help="take the build folder as it is")
        sub.add_argument("--kernel", default="trixie", choices=isa.KERNELS)
        sub.add_argument("--add", action="append", default=[], metavar="[NAME=]PATH",
                         help="one more file, with the libraries that it loads; by default in /root")
        sub.add_argument("--icount", action="store_true", help="one processor; a nanosecond is an instruction")
        sub.add_argument("--cpus", type=int, default=2)
        sub.add_argument("--cpu", metavar="MODEL", help="QEMU's name of another processor (-cpu)")
        sub.add_argument("--machine", metavar="MODEL", help="QEMU's name of another machine (-M): virt,mte=on")
        if name == "bench":
            sub.add_argument("--json", action="store_true")
            sub.add_argument("--clock", action="append", choices=bench.CLOCKS)
            sub.add_argument("--part", action="append", choices=bench.PARTS)
            sub.add_argument("--timeout", type=int, default=600, metavar="SECONDS", help="of one part")
            sub.add_argument("kernels", nargs="*", choices=[[], *isa.KERNELS], metavar="KERNEL")
        if name == "test":
            sub.add_argument("--suite", action="append", default=[])
            sub.add_argument("--limit", type=int, default=120, metavar="SECONDS", help="of one test")
            sub.add_argument("--only", action="append", default=[], metavar="NAME",
                             help="a part of it: Class.test of a Python file, a cmocka test (the last one named)")
            sub.add_argument("names", nargs="*", metavar="TEST")
        if name == "run":
            sub.add_argument("--timeout", type=int, default=300, metavar="SECONDS")
            sub.add_argument("command", nargs=argparse.REMAINDER, help="one word: a line for the shell")
    return parser.parse_args()


def main():
    arguments = parse()
    return arguments.function(arguments)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Shows trapless on a live redis-server under full load, beside the kernel's uprobes.

Starts a private redis-server on a free loopback port, drives it with redis-benchmark, and runs bare and
probed in turn, so that a drift of the machine's speed hits both alike. A figure is the median of the
rounds, a percentage the median of each round's probed / bare ratio. Ends and removes all it started.
"""
import argparse
import csv
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

FUNCTIONS = ["processCommand", "call", "dictSdsHash", "lookupKey", "dictFind", "addReply", "siphash",
             "dictSdsKeyCompare"]
SETS = [2, 3, 8]  # how many of them are probed at once
TESTS = ["SET", "GET"]
KEYS = 10000
START_TIMEOUT_S = 10
ATTACH_TIMEOUT_S = 20
RUN_TIMEOUT_S = 60
LATENCY_S, TRACE_S = 1, 0.05
EVENTS_SHOWN = 5
STATUS_USAGE = 2

LOADS = [("redis-benchmark -P 32", 32), ("redis-benchmark, plain", 1)]
METHODS = {"jump": "trapless", "kernel": "kernel uprobes"}

# The plan of time. A slower or busier machine gets fewer rounds, not a longer demo.
RUN_S = 0.22  # of one test of one benchmark
ROUNDS = {"jump": 9, "kernel": 3}
ROUNDS_MIN = 3
BUDGET_S = 95  # no new round begins after that
BUSY_LOAD = 2.5  # a CPU; the demo's own is below 1.5
REQUESTS = range(500, 400000)


class Failure(Exception):
    """Something a person should read in one line."""


def note(text):
    """A progress line that the next one overwrites; only on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


class Server:
    """A redis-server that keeps nothing on disk and listens on loopback only."""

    def __init__(self, folder):
        self.folder = folder
        self.process = None
        self.port = 0

    def start(self):
        for _ in range(5):  # another program may take the free port first
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
            self.process = subprocess.Popen(
                ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
                 "--appendonly", "no", "--daemonize", "no", "--dir", self.folder],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True)
            deadline = time.monotonic() + START_TIMEOUT_S
            while self.process.poll() is None and time.monotonic() < deadline:
                try:
                    if self.ask("PING").startswith(b"+PONG"):
                        return
                except OSError:
                    time.sleep(0.02)
            self.stop()
        raise Failure("redis-server did not start")

    def ask(self, *words):
        """One command, one answer (a bulk string is read whole)."""
        request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as link:
            link.sendall(request.encode())
            with link.makefile("rb") as answer:
                line = answer.readline()
                if line.startswith(b"$"):
                    line = answer.read(int(line[1:]))
                return line

    def commands_processed(self):
        for line in self.ask("INFO", "stats").splitlines():
            if line.startswith(b"total_commands_processed:"):
                return int(line.split(b":")[1])
        raise Failure("redis-server tells no total_commands_processed")

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
        if self.process:
            self.process.wait()
        self.process = None


class Count:
    """A running `trapless count`; its JSON lines are kept."""

    def __init__(self, trapless, pid, functions, method):
        self.lines = []
        self.process = subprocess.Popen(
            [trapless, "count", "-p", str(pid), "--json", "-q", "--method", method] + functions,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True)
        self.method = method
        try:
            self.wait_attached(len(functions))
        except BaseException:
            self.stop()
            raise

    def wait_attached(self, sites):
        """The probe lines come when all is placed."""
        watchdog = threading.Timer(ATTACH_TIMEOUT_S, self.process.terminate)
        watchdog.start()
        try:
            for _ in range(sites):
                line = self.process.stdout.readline()
                if not line:
                    raise Failure(self.process.stderr.read().strip() or "trapless count ended")
                self.lines.append(json.loads(line))
                if self.lines[-1].get("method") != self.method:
                    raise Failure("{function}: {method}: {reason}".format_map(self.lines[-1]))
        finally:
            watchdog.cancel()

    def stop(self):
        """As Ctrl-C: it takes its probes away first. Returns what it still had to say."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.communicate(timeout=RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.communicate()

    def end(self):
        """Returns all lines."""
        out, errors = self.stop()
        self.lines += [json.loads(line) for line in out.splitlines() if line.strip()]
        if self.process.returncode:
            raise Failure(f"trapless count: status {self.process.returncode}: {errors.strip()}")
        return self.lines


class Load:
    """redis-benchmark for as long as the block lasts."""

    def __init__(self, server):
        self.port = server.port
        self.process = None

    def __enter__(self):
        self.process = subprocess.Popen(
            ["redis-benchmark", "-h", "127.0.0.1", "-p", str(self.port), "-t", "set,get", "-r",
             str(KEYS), "-q", "-l"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def benchmark(server, pipeline, requests):
    """Requests a second of SET and of GET."""
    done = subprocess.run(
        ["redis-benchmark", "-h", "127.0.0.1", "-p", str(server.port), "-t", "set,get", "-P",
         str(pipeline), "-n", str(requests), "-r", str(KEYS), "-q", "--csv"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
    rates = {row[0]: float(row[1]) for row in csv.reader(done.stdout.splitlines())
             if len(row) > 1 and row[0] in TESTS}
    if done.returncode or set(rates) != set(TESTS):
        raise Failure(f"redis-benchmark failed: {(done.stderr or done.stdout).strip()[:300]}")
    return rates


def text_differences(pid):
    """Compares every executable mapping with its file. Returns (bytes compared, bytes that differ)."""
    compared = different = 0
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as maps, \
            open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            fields = line.split(None, 5)
            if len(fields) < 6 or "x" not in fields[1] or not fields[5].startswith("/"):
                continue
            path = fields[5].rstrip("\n")
            if path.startswith("/memfd:") or path.endswith(" (deleted)"):
                continue
            start, end = (int(part, 16) for part in fields[0].split("-"))
            with open(f"/proc/{pid}/root{path}", "rb") as file:
                file.seek(int(fields[2], 16))
                want = file.read(end - start)
            memory.seek(start)
            have = b""
            while len(have) < len(want):
                piece = memory.read(len(want) - len(have))
                if not piece:
                    break
                have += piece
            compared += len(want)
            different += sum(a != b for a, b in zip(have, want)) + len(want) - len(have)
    return compared, different


class Demo:
    def __init__(self, trapless, rounds):
        self.trapless = trapless
        self.rounds = rounds
        self.table = []  # (load, label, {test: (rate, ratio, rounds)})
        self.hits = {}  # of the last run with all functions
        self.attach_ms, self.stopped_ms, self.detach_ms = [], [], []
        self.exact = []  # (method, hits of call, redis's own count)
        self.pairs, self.bare = {}, {}
        self.kernel_reason = None

    def kernel_possible(self, server):
        try:
            Count(self.trapless, server.process.pid, FUNCTIONS[:1], "kernel").end()
            return True
        except Failure as failure:
            self.kernel_reason = str(failure)
            return False

    def probed(self, server, functions, method, pipeline, requests):
        before = server.commands_processed()
        count = Count(self.trapless, server.process.pid, functions, method)
        try:
            rates = benchmark(server, pipeline, requests)
        finally:
            lines = count.end()
        # The first INFO was counted by redis after it told its number, and before the attach.
        commands = server.commands_processed() - before - 1
        hits = {line["probe"]: line["hits"] for line in lines if line["type"] == "count"}
        names = {line["probe"]: line["function"] for line in lines if line["type"] == "probe"}
        summary = lines[-1]
        by_name = {names[probe]: number for probe, number in hits.items()}
        self.exact.append((method, by_name["call"], commands))
        if summary["dropped"]:
            raise Failure(f"{summary['dropped']} hits were dropped")
        if method == "jump":
            if len(functions) == len(FUNCTIONS):
                self.hits = by_name
            self.attach_ms.append(summary["attach_ms"])
            self.stopped_ms.append(summary["stopped_ms"])
            self.detach_ms.append(summary["detach_ms"])
        return rates

    def calibrate(self, server, pipeline, method):
        """How many requests take about RUN_S, bare and by jump, or under the kernel's 8 probes."""
        rate, requests = 1e4, 2000 if method == "kernel" else 20000
        for _ in range(2):  # the first one warms up
            if method == "kernel":
                rates = self.probed(server, FUNCTIONS, method, pipeline, requests)
            else:
                rates = benchmark(server, pipeline, requests)
            rate = statistics.mean(rates.values())
            requests = int(min(max(rate * RUN_S, REQUESTS.start), REQUESTS.stop))
        return requests

    def pair(self, server, cell, requests):
        """One bare and one probed run, one right after the other."""
        (_, pipeline), method, number = cell
        bare = benchmark(server, pipeline, requests["jump"])
        probed = self.probed(server, FUNCTIONS[:number], method, pipeline, requests[method])
        for test in TESTS:
            self.bare[cell[0]][test].append(bare[test])
            self.pairs[cell][test].append((probed[test], probed[test] / bare[test]))

    def run(self, server):
        started = time.monotonic()
        methods = ["jump"] + ["kernel"] * self.kernel_possible(server)
        cells = [(load, method, number) for load in LOADS for method in methods for number in SETS]
        self.pairs = {cell: {test: [] for test in TESTS} for cell in cells}
        self.bare = {load: {test: [] for test in TESTS} for load in LOADS}
        note("warming up")
        requests = {load: {method: self.calibrate(server, load[1], method) for method in methods}
                    for load in LOADS}
        for i in range(self.rounds or ROUNDS["jump"]):
            if i >= ROUNDS_MIN and time.monotonic() - started > BUDGET_S:
                break
            for cell in cells:
                load, method, number = cell
                if i < ROUNDS[method]:
                    note(f"round {i + 1}: {load[0]}, {number} functions, {METHODS[method]}")
                    self.pair(server, cell, requests[load])
        note("")
        if os.getloadavg()[0] > BUSY_LOAD * os.cpu_count():
            print(f"other work keeps this machine busy (load {os.getloadavg()[0]:.0f}): "
                  "the figures scatter\n")
        for load in LOADS:
            self.table.append((load[0], "no probes",
                               {test: (statistics.median(self.bare[load][test]), 1.0, 0)
                                for test in TESTS}))
            self.table += [(load[0], f"{cell[2]} functions, {METHODS[cell[1]]}", self.row(cell))
                           for cell in cells if cell[0] == load]

    def look(self, server, command, seconds, function):
        """What a person would see: the lines of a trapless trace or latency under load."""
        before = server.commands_processed()
        while server.commands_processed() < before + 100:  # the load has begun
            time.sleep(0.01)
        done = subprocess.run(
            [self.trapless, command, "-p", str(server.process.pid), "-d", str(seconds), "-q", function],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_TIMEOUT_S,
            start_new_session=True, check=False)
        if done.returncode:
            raise Failure(f"trapless {command}: status {done.returncode}: {done.stderr.strip()}")
        return done.stdout.splitlines()

    def show_more(self, server):
        with Load(server):
            note("latency and events")
            times = self.look(server, "latency", LATENCY_S, "call")
            events = self.look(server, "trace", TRACE_S, "processCommand")
        note("")
        print(f"\ntrapless latency -d {LATENCY_S} call (redis-benchmark, plain)")
        print("\n".join("  " + line for line in times))
        print(f"\ntrapless trace -d {TRACE_S} processCommand, the first {EVENTS_SHOWN} events")
        print("\n".join("  " + line for line in events[:1 + EVENTS_SHOWN] + events[-1:]))

    def row(self, cell):
        return {test: (statistics.median(rate for rate, _ in pairs),
                       statistics.median(ratio for _, ratio in pairs), len(pairs))
                for test, pairs in self.pairs[cell].items()}

    def show(self, server):
        print(f"redis-server, {os.cpu_count()} CPUs; requests a second, and the share of the bare run "
              "just before (medians)\n")
        print(f"{'':34}" + "".join(f"{test:>14}{'':9}" for test in TESTS) + " rounds")
        last = None
        for load, label, row in self.table:
            if load != last:
                print(load)
                last = load
            print(f"  {label:32}" + "".join(f"{row[test][0]:14,.0f}{row[test][1]:8.1%} "
                                            for test in TESTS) + f"{row['SET'][2] or '':>7}".rstrip())
        if self.kernel_reason:
            print(f"\nno kernel uprobes here: {self.kernel_reason}")
        print("\nhits of the last run with 8 functions")
        for function in FUNCTIONS:
            print(f"  {self.hits[function]:>14,}  {function}")
        wrong = [entry for entry in self.exact if entry[1] != entry[2]]
        self.show_more(server)
        print(f"\ncall() hits equal redis's own count of commands in {len(self.exact) - len(wrong)} "
              f"of {len(self.exact)} runs")
        print(f"stop time: median {statistics.median(self.stopped_ms):.3f} ms, longest "
              f"{max(self.stopped_ms):.3f} ms (attach {statistics.median(self.attach_ms):.1f} ms, "
              f"detach {statistics.median(self.detach_ms):.1f} ms)")
        compared, different = text_differences(server.process.pid)
        print(f"text of the running server: {compared:,} bytes compared with the files, "
              f"{different} differ")
        alive = server.ask("PING").startswith(b"+PONG")
        print(f"redis-server {'runs on and answers' if alive else 'does NOT answer'}")
        for method, hits, commands in wrong:
            print(f"  {method}: {hits:,} hits, {commands:,} commands", file=sys.stderr)
        return 1 if wrong or different or not compared or not alive else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trapless", default="build/trapless")
    parser.add_argument("--rounds", type=int, default=0, help="at most (0: as planned)")
    arguments = parser.parse_args()
    for program in ("redis-server", "redis-benchmark", arguments.trapless):
        if not shutil.which(program):
            print(f"demo: {program} is not there: run make first", file=sys.stderr)
            return STATUS_USAGE
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    folder = tempfile.mkdtemp(prefix="trapless-demo-")
    server = Server(folder)
    started = time.monotonic()
    try:
        server.start()
        demo = Demo(os.path.abspath(arguments.trapless), arguments.rounds)
        demo.run(server)
        status = demo.show(server)
        print(f"took {time.monotonic() - started:.0f} s")
        return status
    except (Failure, subprocess.TimeoutExpired, OSError) as failure:
        note("")
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        note("")
        print("demo: interrupted", file=sys.stderr)
        return 130
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

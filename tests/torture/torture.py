#!/usr/bin/env python3
"""Torture: every function of real programs probed at once while their own work runs.

A case passes only if the program's results equal those of its bare run, every probe that was placed was
closed again, the text equals the file, and the hits of chosen functions equal a number known beforehand
(or counted by the kernel's own probes in a second run).

Usage: torture.py TRAPLESS [--short] [--standard PROGRAM] [CASE...]    cases: see CASES at the end
PROGRAM is made of standard.cc.
"""
import collections
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ATTACH_TIMEOUT_S = 60
ARGUMENTS_MAX = 100  # probes that are given as words
NEIGHBOURS = 100  # instructions in a row that are probed at once
LIBRARIES = f"/usr/lib/{os.uname().machine}-linux-gnu"
# The first words of instructions behind which control may go on elsewhere.
LEAVES = {"x86_64": {"call", "ret", "loop", "loope", "loopne", "syscall", "hlt", "ud2", "int3", "bnd", "notrack"},
          "aarch64": {"b", "bl", "br", "blr", "cbz", "cbnz", "tbz", "tbnz", "svc", "brk", "hlt", "udf"},
          "riscv64": {"beq", "bne", "blt", "bge", "bltu", "bgeu", "ecall", "ebreak", "c.ebreak"}}
LEAVES_BEGIN = {"x86_64": ("j",), "aarch64": ("b.", "bc.", "ret", "bra", "blra", "era"),
                "riscv64": ("j", "c.j", "c.b")}


class Failure(Exception):
    pass


def check(condition, text):
    if not condition:
        raise Failure(text)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Redis:
    """A private redis-server without persistence, on a free loopback port."""

    def __init__(self, folder):
        self.port = free_port()
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
             "--appendonly", "no", "--dir", folder, "--enable-debug-command", "yes"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError):
                self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=60)
                break
            check(time.monotonic() < deadline, "redis-server did not come up")
            time.sleep(0.02)
        self.file = self.socket.makefile("rwb")

    def reply(self):
        line = self.file.readline()
        check(line, "redis closed the connection")
        if line[:1] == b"$":
            size = int(line[1:])
            return b"" if size < 0 else self.file.read(size + 2)[:-2]
        if line[:1] == b"*":
            return [self.reply() for _ in range(int(line[1:]))]
        return line.strip()

    def commands(self, lines):
        """Sends inline commands in pipelines of 100; returns the replies."""
        replies = []
        for first in range(0, len(lines), 100):
            part = lines[first:first + 100]
            self.file.write(b"".join(line.encode() + b"\r\n" for line in part))
            self.file.flush()
            replies += [self.reply() for _ in part]
        return replies

    def close(self):
        self.file.close()
        self.socket.close()
        self.process.terminate()
        self.process.wait(20)


class Count:
    """`trapless count --json` on a pid, running in the background."""

    def __init__(self, trapless, pid, probes, extra=()):
        self.out = tempfile.NamedTemporaryFile("r+", suffix=".json")
        self.process = subprocess.Popen(
            [trapless, "count", "-p", str(pid), "--json", "-o", self.out.name, *extra, *probes],
            stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + ATTACH_TIMEOUT_S
        while True:
            with open(self.out.name) as f:
                if '"type":"probe"' in f.read().replace(" ", ""):
                    break
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Failure("count did not attach: " + self.process.communicate()[1])
            time.sleep(0.02)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=120)
        check(self.process.returncode == 0,
              f"count ended with {self.process.returncode}: {errors}")
        with open(self.out.name) as f:
            return Report(f)


class Report:
    def __init__(self, lines):
        self.probes, self.hits, self.summary = {}, {}, None
        for line in lines:
            item = json.loads(line)
            if item["type"] == "probe":
                self.probes[item["probe"]] = item
            elif item["type"] == "count":
                self.hits[item["probe"]] = item["hits"]
            elif item["type"] == "summary":
                self.summary = item
        check(self.summary, "no summary line")
        check(self.summary["sites"] == len(self.probes), "a site vanished without a line")

    def of(self, function, kind="uprobe"):
        found = [n for p, n in self.hits.items()
                 if p.startswith(kind + ":") and function in self.probes[p]["function"].split(", ")]
        check(len(found) == 1, f"{function}: {len(found)} counts")
        return found[0]

    def pairs(self):
        """{function: (entries, returns)} where both were jumps to the end."""
        hits = {p: n for p, n in self.hits.items() if self.probes[p]["method"] == "jump"
                and not self.probes[p]["reason"].startswith("closed")}
        return {p.split(":", 1)[1]: (n, hits["uret" + p[1:]]) for p, n in hits.items()
                if p.startswith("uprobe:") and "uret" + p[1:] in hits}

    def text(self):
        s = self.summary
        return (f"{s['sites']} sites, {s['by_method']}, attach {s['attach_ms']:.1f} ms, "
                f"stopped {s['stopped_ms']:.1f} ms, detach {s['detach_ms']:.1f} ms, "
                f"{s['hits']} hits")


def text_differences(pid):
    """Bytes of file-backed executable mappings that differ from their files."""
    different = 0
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            field = line.split(None, 5)
            if "x" not in field[1] or len(field) < 6 or not field[5].startswith("/"):
                continue
            path = field[5].strip()
            if path.startswith("/memfd:"):
                continue
            start, end = (int(x, 16) for x in field[0].split("-"))
            mem.seek(start)
            live = mem.read(end - start)
            with open(f"/proc/{pid}/root{path}", "rb") as f:
                f.seek(int(field[2], 16))
                disk = f.read(end - start)
            live = live[:len(disk)]
            if live != disk:
                different += sum(a != b for a, b in zip(live, disk))
    return different


def redis_work(server, size):
    """Deterministic work over many command families; returns replies that must not change."""
    lines = []
    for i in range(size):
        lines += [f"SET k{i} v{i * 7919}", f"GET k{i}", f"LPUSH l{i % 50} {i}", f"SADD s{i % 50} m{i}",
                  f"ZADD z{i % 20} {i} m{i}", f"HSET h{i % 30} f{i} {i}", f"INCR n{i % 10}",
                  f"APPEND a{i % 10} x", f"EXPIRE k{i} 10000", f"SETBIT b {i} 1"]
    lines += ["LRANGE l1 0 -1", "ZRANGE z3 0 -1", "BITCOUNT b", "SCARD s7", "HLEN h4", "SORT l2",
              "SINTERSTORE si s1 s2", "ZUNIONSTORE zu 2 z1 z2", "DBSIZE",
              "EVAL 'return redis.call(\"GET\",\"k1\")' 0", "DEBUG DIGEST"]
    replies = server.commands(lines)
    check(not any(isinstance(r, bytes) and r[:1] == b"-" for r in replies), "a command failed")
    return len(lines), replies


def case_redis(trapless, short, probes, known):
    size = 300 if short else 5000
    with tempfile.TemporaryDirectory() as folder:
        bare = Redis(folder)
        _, expected = redis_work(bare, size)
        bare.close()
        server = Redis(folder)
        try:
            count = Count(trapless, server.process.pid, probes)
            sent, replies = redis_work(server, size)
            if not short:
                subprocess.run(["redis-benchmark", "-p", str(server.port), "-P", "32", "-n",
                                "500000", "-q", "-t", "ping,lpush,lpop,spop,mset"],
                               check=True, stdout=subprocess.DEVNULL)
            report = count.stop()
            check(replies == expected, "replies differ from the bare run")
            if known and short:
                # EVAL runs one more command through call() but not through processCommand().
                check(report.of("processCommand") == sent,
                      f"processCommand: {report.of('processCommand')} hits for {sent} commands")
            check(server.commands(["PING"]) == [b"+PONG"], "no PONG after detach")
            check(text_differences(server.process.pid) == 0, "text differs from the file")
            return report.text()
        finally:
            server.close()


def run_probed(trapless, action, probes, command, stdin=None, extra=(), **options):
    """(standard output, report) of a probed run; the probes go by a file where they are many."""
    with tempfile.NamedTemporaryFile("r+", suffix=".json") as out, \
            tempfile.NamedTemporaryFile("w", suffix=".probes") as file:
        words = list(probes)
        if len(words) > ARGUMENTS_MAX:
            file.write("\n".join(words) + "\n")
            file.flush()
            words = ["--probes", file.name]
        done = subprocess.run([trapless, action, "--json", "-q", "-o", out.name, *extra, *words, "--", *command],
                              input=stdin, capture_output=True, **options)
        check(done.returncode == 0, f"{action} ended with {done.returncode}: {done.stderr.decode()[-2000:]}")
        return done.stdout, Report(out)


def run_counted(trapless, probes, command, stdin=None, method="auto"):
    return run_probed(trapless, "count", probes, command, stdin, ["--method", method])


def compare_with_kernel(trapless, report, prefix, functions, command, stdin):
    probes = [prefix + f for f in functions]
    _, kernel = run_counted(trapless, probes, command, stdin, "kernel")
    for function in functions:
        check(report.of(function) == kernel.of(function),
              f"{function}: {report.of(function)} hits by jump, {kernel.of(function)} by the kernel")


def sqlite_script(rows):
    return f"""
      create table t(a integer primary key, b text, c real); create index i on t(b);
      with recursive n(x) as (select 1 union all select x+1 from n where x<{rows})
        insert into t select x, hex(x*7919), x/3.0 from n;
      select count(*), sum(a), max(b), round(avg(c),6) from t;
      select b, count(*) from t group by substr(b,1,2) order by 2 desc, 1 limit 5;
      update t set c=c*2 where a%7=0; delete from t where a%11=0;
      select count(*), round(sum(c),3) from t; select group_concat(a) from t where a<40;
      select json_extract('{{"a":[1,2,3]}}','$.a[1]'), printf('%08.3f', 3.14159);
      pragma integrity_check; vacuum; analyze; explain query plan select * from t where b='x';
    """.encode()


def case_sqlite(trapless, short):
    script = sqlite_script(500 if short else 20000)
    command = ["sqlite3", ":memory:"]
    bare = subprocess.run(command, input=script, capture_output=True, check=True).stdout
    out, report = run_counted(trapless, ["libsqlite3.so.0:*"], command, script)
    check(out == bare, "output differs from the bare run")
    compare_with_kernel(trapless, report, "libsqlite3.so.0:",
                        ["sqlite3_step", "sqlite3_prepare_v2", "sqlite3_malloc64"], command, script)
    return report.text()


def case_crypto(trapless, short):
    size = (1 if short else 64) << 20
    data = bytes(range(256)) * (size // 256)
    results = []
    for algorithm in ["sha256", "sha512", "md5", "blake2b512", "sha3-256"]:
        command = ["openssl", "dgst", "-" + algorithm]
        bare = subprocess.run(command, input=data, capture_output=True, check=True).stdout
        out, report = run_counted(trapless, ["libcrypto.so.3:*"], command, data)
        check(out == bare, f"{algorithm} differs from the bare run")
        results.append(report)
        if short:
            break
    command = ["openssl", "enc", "-aes-256-ctr", "-K", "00" * 32, "-iv", "00" * 16]
    bare = subprocess.run(command, input=data, capture_output=True, check=True).stdout
    out, report = run_counted(trapless, ["libcrypto.so.3:*"], command, data)
    check(out == bare, "aes-256-ctr differs from the bare run")
    compare_with_kernel(trapless, report, "libcrypto.so.3:", ["EVP_CipherUpdate", "BIO_write"],
                        command, data)
    return report.text()


def case_libc(trapless, short):
    """Every function of libc in programs that use much of it."""
    commands = [["sort", "-n"], ["sed", "s/\\(.\\)1/\\1x/g"], ["awk", "{s+=$1} END{printf \"%.3f\\n\", s/7}"],
                ["bash", "-c", "for i in 1 2 3; do echo $i | tr 1 2; done; printf '%s\\n' {1..50}"],
                ["python3", "-c", "import sys,hashlib,json,re;d=sys.stdin.read();"
                 "print(hashlib.md5(d.encode()).hexdigest(), len(re.findall('1.',d)), json.dumps([1.5]))"]]
    data = "".join(f"{(i * 7919) % 10007} line {i}\n" for i in range(200 if short else 20000)).encode()
    for command in commands:
        bare = subprocess.run(command, input=data, capture_output=True, check=True).stdout
        out, report = run_counted(trapless, ["libc.so.6:*"], command, data)
        check(out == bare, f"{command[0]}: output differs from the bare run")
    return report.text()


def entries_and_returns(file):
    return [f"{file}:*", f"uretprobe:{file}:*"]


def check_pairs(report, live=(), least=1):
    """Each function was left as often as it was entered, but for those that the end of the program found
    inside; none was left more often."""
    pairs = report.pairs()
    check(sum(e > 0 for e, _ in pairs.values()) >= least, f"only {len(pairs)} functions by entry and return")
    odd = {f: pair for f, pair in pairs.items() if pair[0] != pair[1] and f.rsplit(":", 1)[1] not in live}
    check(not odd, f"entries and returns differ: {odd}")


def check_not_more(report):
    more = {f: pair for f, pair in report.pairs().items() if pair[1] > pair[0]}
    check(not more, f"left more often than entered: {more}")


def both_ways(short):
    """Options by which returns are probed."""
    return [()] if short else [(), ("--return", "exit"), ("--return", "trampoline")]


def same_output(trapless, action, probes, command, stdin=None, extra=(), **options):
    bare = subprocess.run(command, input=stdin, capture_output=True, check=True, **options).stdout
    out, report = run_probed(trapless, action, probes, command, stdin, extra, **options)
    check(out == bare, f"{command[:3]} {extra}: output differs from the bare run")
    return bare, report


def case_standard(trapless, short, program):
    """All of libstdc++ in a program of exceptions, streams, expressions, sorting, locales, threads."""
    library = "libstdc++.so.6"
    command = [program, "100" if short else "3000"]
    for way in both_ways(short):
        out, report = same_output(trapless, "count", entries_and_returns(library), command, None, way)
        known = {name: int(value) for name, value in
                 (line.split() for line in out.decode().splitlines()[-3:])}
        for name, function in (("throws", "__cxa_throw"), ("catches", "__cxa_begin_catch"),
                               ("rethrows", "__cxa_rethrow")):
            check(report.of(function) == known[name], f"{function}: {report.of(function)}, {known[name]} known")
        if "trampoline" not in way:
            check(report.of("__cxa_begin_catch", "uretprobe") == known["catches"], "__cxa_begin_catch returns")
        check_not_more(report)
        same_output(trapless, "latency", [f"{library}:*"], command, None, way)
    same_output(trapless, "trace", entries_and_returns(library), [program, "3"])
    return report.text()


def case_crypto_returns(trapless, short):
    size = (1 if short else 64) << 20
    data = bytes(range(256)) * (size // 256)
    library = "libcrypto.so.3"
    commands = [["openssl", "dgst", "-sha256"],
                ["openssl", "enc", "-aes-256-ctr", "-K", "00" * 32, "-iv", "00" * 16],
                ["openssl", "dgst", "-sha3-256"], ["openssl", "dgst", "-md5"], ["openssl", "dgst", "-blake2b512"],
                ["openssl", "prime", "18446744073709551557"]]
    for command in commands[:2] if short else commands:
        for way in both_ways(short):
            _, report = same_output(trapless, "count", entries_and_returns(library), command, data, way)
            check_pairs(report, least=50)
        same_output(trapless, "latency", [f"{library}:*"], command, data)
    return report.text()


def case_sqlite_returns(trapless, short):
    script = sqlite_script(300 if short else 20000)
    library, command = "libsqlite3.so.0", ["sqlite3", ":memory:"]
    for way in both_ways(short):
        _, report = same_output(trapless, "count", entries_and_returns(library), command, script, way)
        check_pairs(report, least=50)
    same_output(trapless, "latency", [f"{library}:*"], command, script)
    return report.text()


PYTHON = "/usr/bin/python3"
PYTHON_TESTS = "test_dict test_list test_re test_json test_generators test_exceptions".split()
PYTHON_WORK = """
import re, json, sys
def generate(n):
    for i in range(n):
        try:
            yield 1 // (i % 3)
        except ZeroDivisionError:
            raise KeyError(i)
def total(n):
    found = 0
    for i in range(n):
        try:
            found += sum(generate(i % 4))
        except KeyError as error:
            found += error.args[0]
    return found
words = [hex(i * 7919) for i in range(int(sys.argv[1]))]
print(total(1000), len(words), len(re.findall("[a-f]+", " ".join(words))), len(json.dumps(sorted(words))))
"""


def case_python_returns(trapless, short):
    """Entry and return of every function of python, under a script and a part of its own tests."""
    probes = ["*", "uretprobe:" + os.path.realpath(PYTHON) + ":*"]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    hits = []
    for calls in (1000, 1777):
        _, report = same_output(trapless, "count", probes, [PYTHON, "-c", PYTHON_WORK, str(calls)], env=environment)
        hits.append((report.of("PyNumber_ToBase"), report.of("PyNumber_ToBase", "uretprobe")))
    check([b - a for a, b in zip(*hits)] == [777, 777], f"PyNumber_ToBase: {hits}")
    tests = PYTHON_TESTS[:3] if short else PYTHON_TESTS
    for way in both_ways(short):
        with tempfile.TemporaryDirectory() as folder:
            out, report = run_probed(trapless, "count", probes, [PYTHON, "-m", "test", *tests], None,
                                     way, env=environment, cwd=folder)
        check(b"Tests result: SUCCESS" in out, f"python's own tests: {out[-2000:]}")
        check_not_more(report)
    same_output(trapless, "latency", ["*"], [PYTHON, "-c", PYTHON_WORK, "1000"], env=environment)
    return report.text()


def case_libc_returns(trapless, short):
    data = "".join(f"{(i * 7919) % 10007} line {i}\n" for i in range(200 if short else 20000)).encode()
    commands = [["sort", "-n"], ["bash", "-c", "for i in 1 2 3; do echo $i | tr 1 2; done; printf '%s\\n' {1..50}"],
                ["sed", "s/\\(.\\)1/\\1x/g"], ["awk", "{s+=$1} END{printf \"%.3f\\n\", s/7}"],
                [PYTHON, "-c", "import sys,threading;print(len(sys.stdin.read()));t=threading.Thread(target="
                 "lambda:print(5));t.start();t.join()"]]
    for command in commands[:2] if short else commands:
        for way in both_ways(short):
            _, report = same_output(trapless, "count", entries_and_returns("libc.so.6"), command, data, way)
        same_output(trapless, "latency", ["libc.so.6:*"], command, data)
    return report.text()


# ---- every instruction ----------------------------------------------------------------------------

def instructions_of(trapless, file):
    """[(address in the file, size, text)] of all that a jump can be placed on, ascending."""
    done = subprocess.run([trapless, "explain", file, "*", "--all-instructions", "--json"], capture_output=True,
                          check=True)
    found = {}
    for line in done.stdout.splitlines():
        item = json.loads(line)
        if item["type"] == "site" and item["method"] == "jump":
            found[int(item["addr"], 16)] = (len(item["bytes"]) // 2, item["insn"])
    return [(addr, *found[addr]) for addr in sorted(found)]


def goes_on(text):
    """The instruction is followed by the one behind it, and nothing else."""
    first, machine = text.split()[0], os.uname().machine
    return not (first.startswith(LEAVES_BEGIN[machine]) or first in LEAVES[machine])


def check_flow(report, part):
    """Where control can only go on to the next instruction, that one was executed at least as often."""
    lines = [(int(p["addr"], 16), report.hits[name]) for name, p in report.probes.items()
             if p["method"] == "jump" and not p["reason"].startswith("closed")]
    check(len(lines) > 0.9 * len(part), f"only {len(lines)} of {len(part)} placed")
    # A library's own addresses are the file's and one number that all have in common.
    biases = collections.Counter(addr - part[0][0] for addr, _ in lines)
    bias = next(b for b in biases if sum((addr - b) in {a for a, _, _ in part[:200]} for addr, _ in lines[:200]) > 100)
    hits = {addr - bias: n for addr, n in lines}
    compared = 0
    for (addr, size, text), (after, _, _) in zip(part, part[1:]):
        if addr + size == after and addr in hits and after in hits and goes_on(text):
            compared += 1
            check(hits[after] >= hits[addr],
                  f"{addr:#x} {text}: {hits[addr]} hits, {hits[after]} of the next instruction")
    return compared, sum(n > 0 for n in hits.values())


def slices(instructions, size, most):
    """At most so many parts of about that size, each of neighbours here and there in the whole file."""
    runs = [instructions[i:i + NEIGHBOURS] for i in range(0, len(instructions), NEIGHBOURS)]
    count = max(1, len(instructions) // size)
    return [sum(runs[i::count], []) for i in range(min(count, most))]


def case_instructions(trapless, short, file, commands):
    """commands: [(command, standard input)]; each part of the file gets one of them, in turn, or all."""
    bare = [subprocess.run(c, input=i, capture_output=True, check=True).stdout for c, i in commands]
    instructions = instructions_of(trapless, file)
    parts = slices(instructions, 2000, 6) if short else slices(instructions, 20000, len(instructions))
    sites = compared = executed = 0
    for number, part in enumerate(parts):
        probes = [f"uprobe:{file}:{addr:#x}" for addr, _, _ in part]
        for at in [number % len(commands)] if short else range(len(commands)):
            out, report = run_probed(trapless, "count", probes, *commands[at], ["--method", "jump", "--no-follow"])
            check(out == bare[at], f"{commands[at][0][:3]}: output differs with probes on {part[0][0]:#x} to "
                                   f"{part[-1][0]:#x}")
            more, hit = check_flow(report, part)
            compared, executed = compared + more, executed + hit
        sites += report.summary["by_method"].get("jump", 0)
    check(executed > 0 and compared > 0, "no instruction was executed")
    return (f"{sites} of {len(instructions)} instructions, {executed} executed, {compared} compared with the "
            f"next, last: {report.text()}")


def case_sqlite_instructions(trapless, short):
    return case_instructions(trapless, short, LIBRARIES + "/libsqlite3.so.0",
                             [(["sqlite3", ":memory:"], sqlite_script(50 if short else 500))])


def case_libc_instructions(trapless, short):
    data = "".join(f"{(i * 7919) % 10007} line {i}\n" for i in range(200)).encode()
    script = "while read a b; do (printf '%08s %s\\n' $a \"$b\"); done | sort -n | tail -20"
    return case_instructions(trapless, short, LIBRARIES + "/libc.so.6",
                             [(["bash", "-c", script], data), (["sort", "-n"], data), (["ls", "-la", "/usr/bin"], None),
                              (["awk", "{s+=$1; t=sprintf(\"%s%.3f\", t, s/7)} END{print length(t)}"], data)])


def our_mappings(pid):
    with open(f"/proc/{pid}/maps") as maps:
        return sum("trapless" in line for line in maps)


def case_churn(trapless, short):
    """Attach and detach again and again under load: replies stay right, nothing piles up."""
    rounds = 8 if short else 200
    with tempfile.TemporaryDirectory() as folder:
        server = Redis(folder)
        load = subprocess.Popen(["redis-benchmark", "-p", str(server.port), "-P", "16", "-q", "-l",
                                 "-t", "get,set"], stdout=subprocess.DEVNULL)
        try:
            kept, jumps = [], []
            for i in range(rounds):
                count = Count(trapless, server.process.pid, ["*", "libc.so.6:*"])
                replies = server.commands([f"SET x{i} {i}", f"GET x{i}", f"APPEND x{i} z"])
                check(replies == [b"+OK", str(i).encode(), b":%d" % (len(str(i)) + 1)],
                      f"round {i}: {replies}")
                report = count.stop()
                kept.append(our_mappings(server.process.pid))
                jumps.append(report.summary["by_method"].get("jump", 0))
                check(text_differences(server.process.pid) == 0, "text differs from the file")
            check(max(kept[2:]) <= 2 * max(kept[:2]), f"mappings pile up: {kept}")
            check(min(jumps) >= 0.99 * max(jumps), f"places run out: {jumps}")
            return f"{rounds} rounds, {max(kept)} mappings at most, {report.text()}"
        finally:
            load.terminate()
            load.wait(20)
            server.close()


CASES = {
    "churn": case_churn,
    "redis": lambda t, s: case_redis(t, s, ["*"], True),
    "redis-libc": lambda t, s: case_redis(t, s, ["libc.so.6:*"], False),
    "sqlite": case_sqlite,
    "crypto": case_crypto,
    "libc": case_libc,
    "crypto-returns": case_crypto_returns,
    "sqlite-returns": case_sqlite_returns,
    "python-returns": case_python_returns,
    "libc-returns": case_libc_returns,
    "redis-returns": lambda t, s: case_redis(t, s,
                                           entries_and_returns(os.path.realpath("/usr/bin/redis-server")), True),
    "sqlite-instructions": case_sqlite_instructions,
    "libc-instructions": case_libc_instructions,
}


def main():
    standard = "standard"
    arguments = sys.argv[1:]
    short = "--short" in arguments
    arguments = [a for a in arguments if a != "--short"]
    if "--standard" in arguments:
        at = arguments.index("--standard")
        standard = os.path.abspath(arguments[at + 1])
        del arguments[at:at + 2]
    if not arguments:
        sys.exit(__doc__)
    cases = {**CASES, "standard": lambda t, s: case_standard(t, s, standard)}
    trapless, names = os.path.abspath(arguments[0]), arguments[1:] or list(cases)
    tools = ["redis-server", "redis-benchmark", "sqlite3"] + ["openssl"] * any("crypto" in name for name in names)
    for tool in tools:
        check(shutil.which(tool), f"{tool} is not installed: run make setup")
    failed = 0
    for name in names:
        start = time.monotonic()
        try:
            result = cases[name](trapless, short)
        except Failure as failure:
            failed += 1
            result = f"FAILED: {failure}"
        print(f"{name}: {result} ({time.monotonic() - start:.1f} s)", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

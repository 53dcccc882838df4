#!/usr/bin/env python3
"""Torture: every function of real programs probed at once while their own work runs.

A case passes only if the program's results equal those of its bare run, every probe that was placed was
closed again, the text equals the file, and the hits of chosen functions equal a number known beforehand
(or counted by the kernel's own probes in a second run).

Usage: torture.py TRAPLESS [--short] [CASE...]      cases: see CASES at the end
"""
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

    def of(self, function):
        found = [n for p, n in self.hits.items()
                 if function in self.probes[p]["function"].split(", ")
                 or function in self.probes[p]["function"].split(",")]
        check(len(found) == 1, f"{function}: {len(found)} counts")
        return found[0]

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


def run_counted(trapless, probes, command, stdin=None, method="auto"):
    with tempfile.NamedTemporaryFile("r+", suffix=".json") as out:
        done = subprocess.run(
            [trapless, "count", "--json", "-o", out.name, "--method", method, *probes, "--", *command],
            input=stdin, capture_output=True)
        check(done.returncode == 0, f"count ended with {done.returncode}: {done.stderr.decode()}")
        return done.stdout, Report(out)


def compare_with_kernel(trapless, report, prefix, functions, command, stdin):
    probes = [prefix + f for f in functions]
    _, kernel = run_counted(trapless, probes, command, stdin, "kernel")
    for function in functions:
        check(report.of(function) == kernel.of(function),
              f"{function}: {report.of(function)} hits by jump, {kernel.of(function)} by the kernel")


def case_sqlite(trapless, short):
    rows = 500 if short else 20000
    script = f"""
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
}


def main():
    arguments = sys.argv[1:]
    short = "--short" in arguments
    arguments = [a for a in arguments if a != "--short"]
    if not arguments:
        sys.exit(__doc__)
    trapless, names = os.path.abspath(arguments[0]), arguments[1:] or list(CASES)
    for tool in ["redis-server", "redis-benchmark", "sqlite3", "openssl"]:
        check(shutil.which(tool), f"{tool} is not installed: run make setup")
    failed = 0
    for name in names:
        start = time.monotonic()
        try:
            result = CASES[name](trapless, short)
        except Failure as failure:
            failed += 1
            result = f"FAILED: {failure}"
        print(f"{name}: {result} ({time.monotonic() - start:.1f} s)", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What an agent's image must not have: image.py ISA TOOL_PREFIX IMAGE.elf

Looks at the functions of the linked image: general registers only, system calls only where a trap of
somebody else is passed on, branches only to itself, nothing that counts on where the image lies.
"""
import re
import subprocess
import sys

# By ISA: registers of vectors and floats; the system call; the functions that may make one; addresses that
# are only right if the image lies on a page's start; a direct branch, or an address that looks like a register.
RULES = {
    "x86_64": {
        "vector": r"%([xyz]?mm|st|k)\d|%st\b",
        "call": r"\bsyscall\b",
        "may_call": {"tl_agent_trap", "tl_agent_restorer"},
        "paged": r"$^",
        "branch": r"\b(?:j[a-z]+|call)\s+([0-9a-f]+)\b",
    },
    "arm64": {
        "vector": r"\b[vqdshbzp]\d+\b(?!\])",
        "call": r"\bsvc\b",
        "may_call": {"tl_agent_trap", "tl_agent_restorer"},
        "paged": r"\badrp\b",
        "branch": r"\b(?:b|bl|b\.[a-z]+|cbn?z|tbn?z|adr)\s+(?:[wx]\d+, )?(?:#\d+, )?([0-9a-f]+)\b",
    },
    "riscv64": {
        "vector": r"\b(?:f[tsa]?\d+|v\d+|fcsr|frm|fflags|vl|vtype)\b",
        "call": r"\becall\b",
        "may_call": {"tl_agent_trap", "tl_agent_restorer"},
        "paged": r"\bgp\b",
        "branch": r"\b(?:j|jal|b[a-z]+)\s+(?:[a-z0-9]+,){0,2}([0-9a-f]+)\b",
    },
}
SIZE_MAX = 16384


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def functions(nm, elf):
    """(start, end, name) of each, by the symbol table."""
    found = []
    for line in run(nm, "-S", "--defined-only", elf).splitlines():
        parts = line.split()
        if len(parts) == 4 and parts[2] in "tT":
            start, size = int(parts[0], 16), int(parts[1], 16)
            found.append((start, start + size, parts[3]))
    return sorted(found)


def check(rules, name, text, end):
    """A complaint about one instruction, or None."""
    if re.search(rules["call"], text) and name not in rules["may_call"]:
        return "a system call"
    if re.search(rules["paged"], text):
        return "counts on where the image lies"
    branch = re.search(rules["branch"], text)
    if branch:
        return None if 0 <= int(branch.group(1), 16) < end else "a branch out of the image"
    return "vector registers" if re.search(rules["vector"], text) else None


def main():
    isa, prefix, elf = sys.argv[1:]
    rules = RULES[isa]
    wrong, looked = [], set()
    if run(prefix + "nm", "-u", elf).strip():
        wrong.append("undefined symbols")
    for line in run(prefix + "readelf", "-SW", elf).splitlines():
        section = re.match(r"\s*\[ *\d+\] (\S+) +\S+ +\S+ \S+ (\S+) \S+ ([A-Z]*)", line)
        if section and "A" in section.group(3) and section.group(1) != ".image" and int(section.group(2), 16):
            wrong.append(f"section {section.group(1)}")
    ranges = functions(prefix + "nm", elf)
    end = int(re.search(r"([0-9a-f]+) . tl_agent_image_end", run(prefix + "nm", elf)).group(1), 16)
    for line in run(prefix + "objdump", "-d", "--no-show-raw-insn", elf).splitlines():
        match = re.match(r"\s*([0-9a-f]+):\s+(.*)", line)
        if not match:
            continue
        addr = int(match.group(1), 16)
        name = next((f for start, stop, f in ranges if start <= addr < stop), None)
        if name is None:
            continue
        looked.add(name)
        complaint = check(rules, name, re.sub(r"\s(//|#).*|<.*", "", match.group(2)), end)
        if complaint:
            wrong.append(f"{name}: {complaint}: {line.strip()}")
    for name in ("tl_agent_block", "tl_agent_trap", "tl_agent_fault", "tl_agent_hijack", "tl_agent_trampoline"):
        if name not in looked:
            wrong.append(f"{name}: not looked at")
    if end > SIZE_MAX:
        wrong.append(f"{end} bytes")
    for text in wrong:
        print(text)
    print(f"{isa}: {len(looked)} functions, {end} bytes")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

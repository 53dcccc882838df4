"""Writes a flat image as a C array: embed.py IMAGE OUT.c"""
import sys


def main():
    with open(sys.argv[1], "rb") as image:
        data = image.read()
    with open(sys.argv[2], "w", encoding="ascii") as out:
        out.write('#include "agent/agent.h"\n\n')
        out.write("const unsigned char tl_agent_image[] __attribute__((aligned(8))) = {\n")
        for at in range(0, len(data), 12):
            out.write("    " + " ".join(f"0x{byte:02x}," for byte in data[at : at + 12]) + "\n")
        out.write("};\n\nconst size_t tl_agent_image_size = sizeof tl_agent_image;\n")


if __name__ == "__main__":
    main()

// The list of architectures. Every one is built on every host.
#include "arch/arch.h"

const struct tl_arch *tl_arch_find(uint16_t elf_machine)
{
    return elf_machine == tl_arch_x86_64.elf_machine ? &tl_arch_x86_64 : NULL;
}

// The list of architectures. Every one is built on every host.
#include "arch/arch.h"

const struct tl_arch *tl_arch_find(uint16_t elf_machine)
{
    static const struct tl_arch *const known[] = {&tl_arch_x86_64, &tl_arch_arm64,
                                                  &tl_arch_riscv64};
    for (size_t i = 0; i < TL_ARRAY_COUNT(known); i++) {
        if (known[i]->elf_machine == elf_machine)
            return known[i];
    }
    return NULL;
}

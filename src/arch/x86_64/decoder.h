// What the Zydis-facing files of this folder share. Private to this folder.
#ifndef TL_ARCH_X86_64_DECODER_H
#define TL_ARCH_X86_64_DECODER_H

#include <Zydis/Zydis.h>

#define REG_NONE 16u // of tl_x86_64_reg_number
#define REG_RAX 0u
#define REG_RSP 4u
#define REG_RBP 5u

extern const ZydisDecoder tl_x86_64_decoder;

// The number of the general register that reg is or is a part of, else REG_NONE.
unsigned tl_x86_64_reg_number(ZydisRegister reg);

#endif

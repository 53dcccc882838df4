// What another program might write over a site.
#define STRANGER_BREAKPOINT "\x73\x00\x10\x00" // ebreak
#define STRANGER_JUMP "\x6f\x00\x40\x12"

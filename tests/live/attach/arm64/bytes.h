// What another program might write over a site.
#define STRANGER_BREAKPOINT "\x00\x00\x20\xd4" // brk #0
#define STRANGER_JUMP "\x01\x02\x03\x14"

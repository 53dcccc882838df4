// What another program might write over a site.
#define STRANGER_BREAKPOINT "\xcc"
#define STRANGER_JUMP "\xe9\x01\x02\x03\x04"

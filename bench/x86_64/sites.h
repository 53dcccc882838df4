// The cases of sites.S: SITE(function behind tl_site_, name).
SITE(nop, "nop")
SITE(nop5, "nop5")
SITE(push, "push")
SITE(ret, "ret")
SITE(endbr64, "endbr64")
SITE(loop, "loop")
SITE(short, "short")

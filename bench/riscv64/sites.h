// The cases of sites.S: SITE(function behind tl_site_, name).
SITE(nop, "nop")
SITE(cnop, "cnop")
SITE(push, "push")
SITE(ret, "ret")
SITE(cret, "cret")
SITE(loop, "loop")

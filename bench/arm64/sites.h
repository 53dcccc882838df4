// The cases of sites.S: SITE(function behind tl_site_, name).
SITE(nop, "nop")
SITE(push, "push")
SITE(ret, "ret")
SITE(bti_entry, "bti-entry")
SITE(loop, "loop")

// foo@V0 and foo@@V1 in one library, and old@V0 alone.
int foo_old(void);
int foo_new(void);
int old_only(void);

__asm__(".symver foo_old,foo@V0");
__asm__(".symver foo_new,foo@@V1");
__asm__(".symver old_only,old@V0");

int foo_old(void)
{
    return 10;
}

int foo_new(void)
{
    return 11;
}

int old_only(void)
{
    return 12;
}

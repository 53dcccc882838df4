// Linked by segments.ld, without libc.
__asm__(".globl marker\n.type marker,@function\n"
        "marker: .byte 0xb8,0x0d,0xf0,0x0d,0x60\nret\n.size marker,.-marker\n");

__attribute__((section(".low"), noinline)) int low_function(int value);
__attribute__((section(".low"), noinline)) int low_function(int value)
{
    __asm__ volatile("mov $0x10ca1,%%ecx" ::: "ecx");
    return value + 1;
}

void _start(void);
void _start(void)
{
    __asm__ volatile("call marker\n mov $60,%%eax\n xor %%edi,%%edi\n syscall" ::: "memory");
    low_function(1);
}

# From the 32-bit state that a multiboot loader leaves (Multiboot Specification 0.6.96) to 64-bit mode with AVX-512 enabled,
# memory mapped one to one: Intel SDM volume 3, sections 10.8.5 (IA-32e mode) and 13.5 (XCR0).
.section .multiboot
.align 4
.long 0x1BADB002, 3, -(0x1BADB002 + 3)

.section .text
.code32
.global _start
_start:
    cli
    mov $stack_top, %esp
    mov $pdpt + 3, %eax
    mov %eax, pml4
    mov $pd + 3, %eax
    mov %eax, pdpt
    add $4096, %eax
    mov %eax, pdpt + 8
    xor %ecx, %ecx
1:  mov %ecx, %eax                  # 1024 pages of 2 MiB
    shl $21, %eax
    or $0x83, %eax
    mov %eax, pd(,%ecx,8)
    inc %ecx
    cmp $1024, %ecx
    jne 1b
    mov $pml4, %eax
    mov %eax, %cr3
    mov %cr4, %eax
    or $(1 << 5 | 1 << 9 | 1 << 10 | 1 << 18), %eax     # PAE, OSFXSR, OSXMMEXCPT, OSXSAVE
    mov %eax, %cr4
    mov $0xC0000080, %ecx           # EFER.LME
    rdmsr
    or $0x100, %eax
    wrmsr
    mov %cr0, %eax
    and $~(1 << 2), %eax            # EM
    or $(1 << 31 | 1 << 1 | 1), %eax
    mov %eax, %cr0
    lgdt gdt_register
    ljmp $8, $long_mode

.code64
long_mode:
    mov $16, %ax
    mov %ax, %ds
    mov %ax, %es
    mov %ax, %ss
    xor %ecx, %ecx
    xgetbv
    or $0xE7, %eax                  # x87, SSE, AVX and the three of AVX-512
    xsetbv
    mov $stack_top, %rsp
    call run_cases
2:  hlt
    jmp 2b

.section .data
.align 16
gdt:
    .quad 0, 0x00AF9A000000FFFF, 0x00CF92000000FFFF
gdt_register:
    .word 23
    .long gdt

.section .bss
.align 4096
pml4: .skip 4096
pdpt: .skip 4096
pd: .skip 8192
stack: .skip 1 << 20
stack_top:

.section .note.GNU-stack, "", @progbits

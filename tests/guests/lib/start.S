# Entry of every tiny guest: Linux 64-bit boot protocol, RSI = boot parameters. Gives main() a stack; main never returns.
    .section .text.start, "ax"
    .globl _start
_start:
    cli
    cld
    leaq    stack_top(%rip), %rsp
    xorl    %ebp, %ebp
    movq    %rsi, %rdi
    call    guest_main
1:  jmp     1b

    .bss
    .balign 4096
stack:
    .skip   16384
stack_top:
    .section .note.GNU-stack, "", @progbits

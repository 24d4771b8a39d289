# Entry of every tiny guest: Linux 64-bit boot protocol, RSI = boot parameters. Sets a stack, runs
# constructors of globals, calls guest_main, which never returns.
    .section .text.start, "ax"
    .globl _start
_start:
    cli
    cld
    leaq    stack_top(%rip), %rsp
    xorl    %ebp, %ebp
    movq    %rsi, %rbx
    leaq    constructors_begin(%rip), %r12
    leaq    constructors_end(%rip), %r13
1:  cmpq    %r13, %r12
    je      2f
    call    *(%r12)
    addq    $8, %r12
    jmp     1b
2:  movq    %rbx, %rdi
    call    guest_main
3:  jmp     3b

    .bss
    .balign 4096
stack:
    .skip   16384
stack_top:
    .section .note.GNU-stack, "", @progbits

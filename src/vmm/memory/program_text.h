// vmm/memory/program_text.h - the monitor's own code in memory that fork(2) hands on.
// Problem: fork(2) copies no page tables of file mappings, so every child faults the program in anew, 16 pages at a time: some
// thirty faults, 0.1 ms. Idea: the code lies in anonymous huge pages, one entry each, which fork(2) copies. Never writable and
// executable at once. Costs the code's size in RAM once per zygote; its children share it.
// Thread: before there is a second one. Source: mremap(2), madvise(2) MADV_COLLAPSE.
#pragma once

namespace ramet::vmm {

// Does nothing where the kernel gives none: children are slower then, not different.
void move_program_text_to_huge_pages();

}  // namespace ramet::vmm

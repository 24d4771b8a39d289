// bench/floor/kvm_abi.h - <linux/kvm.h> for the floor programme, which must not use src/kvm: it measures the bare calls.
// In C++ the kernel's flexible-array macro adds a member and with it changes ioctl numbers: redefine it, pin the sizes.
#pragma once

#include <linux/stddef.h>
#undef __DECLARE_FLEX_ARRAY
#define __DECLARE_FLEX_ARRAY(T, n) T n[0]
#include <linux/kvm.h>

static_assert(sizeof(kvm_cpuid2) == 8 && sizeof(kvm_msrs) == 8 && sizeof(kvm_msr_list) == 4);

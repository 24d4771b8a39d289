// kvm/abi.h - <linux/kvm.h> made safe for C++. Private to src/kvm.
// Problem: the kernel's flexible-array macro adds a one-byte member in C++, so sizeof(kvm_cpuid2) and with it every ioctl
// number that encodes such a struct is wrong and the call answers EINVAL. Idea: define the macro as a zero-length array before
// the header is read, and pin the sizes.
#pragma once

#include <linux/stddef.h>
#undef __DECLARE_FLEX_ARRAY
#define __DECLARE_FLEX_ARRAY(TYPE, NAME) TYPE NAME[]
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <linux/kvm.h>
#pragma GCC diagnostic pop

static_assert(sizeof(kvm_cpuid2) == 8);
static_assert(sizeof(kvm_cpuid_entry2) == 40);
static_assert(sizeof(kvm_msrs) == 8);
static_assert(sizeof(kvm_msr_entry) == 16);
static_assert(sizeof(kvm_msr_list) == 4);
static_assert(sizeof(kvm_regs) == 144);
static_assert(sizeof(kvm_sregs) == 312);
static_assert(sizeof(kvm_lapic_state) == 1024);
static_assert(sizeof(kvm_xcrs) == 392);
static_assert(sizeof(kvm_debugregs) == 128);
static_assert(sizeof(kvm_vcpu_events) == 64);
static_assert(sizeof(kvm_mp_state) == 4);
static_assert(sizeof(kvm_userspace_memory_region) == 32);
static_assert(sizeof(kvm_enable_cap) == 104);
static_assert(sizeof(kvm_clock_data) == 48);
static_assert(sizeof(kvm_msi) == 32);

/* Which instruction sets this CPU has. The list itself is generated from the build. */
#include <string.h>

#include "kernels/cpu/cpu.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

static bool has_f16c(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static bool has_vnni(void) { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }

static bool has_bf16(void) { return has_vnni() && __builtin_cpu_supports("avx512bf16"); }

/* Leaf 7, subleaf 1, EAX bit 4; the state of 256-bit registers is the same as AVX2's. */
static bool has_avxvnni(void)
{
    unsigned a = 0, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 4));
}
#else
static bool has_avx2(void) { return false; }
static bool has_avx512(void) { return false; }
static bool has_vnni(void) { return false; }
static bool has_bf16(void) { return false; }
static bool has_avxvnni(void) { return false; }
#endif

bool dlab_isa_supported(const char *isa)
{
    if (strcmp(isa, "plain") == 0) return true;
    if (strcmp(isa, "avx2") == 0) return has_avx2();
    if (strcmp(isa, "avxvnni") == 0) return has_avxvnni();
    if (strcmp(isa, "avx512") == 0) return has_avx512();
    if (strcmp(isa, "vnni") == 0) return has_vnni();
    if (strcmp(isa, "bf16") == 0) return has_bf16();
    return false;
}

int32_t dlab_isa_lanes(const char *isa)
{
    if (strcmp(isa, "plain") == 0) return 4;
    return strcmp(isa, "avx2") == 0 || strcmp(isa, "avxvnni") == 0 ? 8 : 16;
}

const char *dlab_isa_best(void)
{
    const char *best = dlab_isa_list[0];
    for (int i = 0; dlab_isa_list[i]; i++)
        if (dlab_isa_supported(dlab_isa_list[i])) best = dlab_isa_list[i];
    return best;
}

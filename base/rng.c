#include "base/rng.h"

#include <math.h>

uint64_t dlab_splitmix64(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

void dlab_rng_seed(dlab_rng *r, uint64_t seed)
{
    for (int i = 0; i < 4; i++) r->s[i] = dlab_splitmix64(&seed);
}

static uint64_t rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

uint64_t dlab_rng_u64(dlab_rng *r)
{
    uint64_t *s = r->s;
    const uint64_t result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

double dlab_rng_unit(dlab_rng *r) { return (double)(dlab_rng_u64(r) >> 11) * 0x1p-53; }

uint64_t dlab_rng_below(dlab_rng *r, uint64_t n)
{
    const uint64_t biased = -n % n; /* 2⁶⁴ mod n: so many draws would favour the small numbers */
    uint64_t x;
    do x = dlab_rng_u64(r);
    while (x < biased);
    return x % n;
}

/* libm's log and cos may differ in the last bit from machine to machine (it has variants by instruction set), and a
 * seed must give the same weights everywhere; these use only exactly rounded operations. Accurate to about 1e-15. */

/* −ln of u in (0, 1]: u = m·2^e, ln m = 2·atanh((m − 1)/(m + 1)) with m in [√½, √2). */
static double neg_log(double u)
{
    int e;
    double m = frexp(u, &e);
    if (m < 0.70710678118654752) {
        m *= 2;
        e--;
    }
    const double t = (m - 1) / (m + 1), t2 = t * t;
    double sum = 0;
    for (int k = 23; k >= 1; k -= 2) sum = sum * t2 + 1.0 / k;
    return -(2 * t * sum + e * 0.69314718055994531);
}

/* cos(2π·turn) for turn in [0, 1): folded to |angle| ≤ π/2, then the Taylor series. */
static double cos_turn(double turn)
{
    double a = turn > 0.5 ? 1 - turn : turn;
    const double sign = a > 0.25 ? -1 : 1;
    if (a > 0.25) a = 0.5 - a;
    const double x = a * 6.283185307179586, x2 = x * x;
    double sum = 0;
    for (int k = 22; k >= 0; k -= 2) sum = 1 - sum * x2 / ((k + 1.0) * (k + 2.0));
    return sign * sum;
}

double dlab_rng_normal(dlab_rng *r)
{
    const double u = 1 - dlab_rng_unit(r); /* (0, 1] */
    const double turn = dlab_rng_unit(r);
    return sqrt(2 * neg_log(u)) * cos_turn(turn);
}

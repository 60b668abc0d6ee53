/* Seeded random numbers: SplitMix64 to seed, xoshiro256** to draw (Blackman and Vigna, 2018, public domain algorithms).
 * Same seed, same numbers, on every machine. */
#ifndef DLAB_BASE_RNG_H
#define DLAB_BASE_RNG_H

#include <stdint.h>

typedef struct {
    uint64_t s[4];
} dlab_rng;

uint64_t dlab_splitmix64(uint64_t *state);
void dlab_rng_seed(dlab_rng *r, uint64_t seed);
uint64_t dlab_rng_u64(dlab_rng *r);
double dlab_rng_unit(dlab_rng *r);                /* [0, 1), 53 bits */
uint64_t dlab_rng_below(dlab_rng *r, uint64_t n); /* [0, n), unbiased; n > 0 */
double dlab_rng_normal(dlab_rng *r);              /* mean 0, sd 1 (Box–Muller, one value a call) */

#endif

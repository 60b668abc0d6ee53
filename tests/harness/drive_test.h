/* Requests for the tests of the measuring loop. */
#ifndef DLAB_TESTS_HARNESS_DRIVE_TEST_H
#define DLAB_TESTS_HARNESS_DRIVE_TEST_H

#include "harness/run/drive.h"

#define MS 1000000

#define MAX_REQUESTS 8 /* prompts */
typedef struct {
    dlab_requests q;
    int32_t ids[MAX_REQUESTS * 16];
    int64_t offset[MAX_REQUESTS], depth[MAX_REQUESTS], prompt[MAX_REQUESTS], output[MAX_REQUESTS];
    uint64_t seed[MAX_REQUESTS];
    int64_t arrival[MAX_REQUESTS], after[MAX_REQUESTS], think[MAX_REQUESTS]; /* for tests that want them */
} fixed_requests;

static inline void make_requests(fixed_requests *f, int64_t n, int64_t depth, int64_t prompt, int64_t output)
{
    for (int i = 0; i < MAX_REQUESTS * 16; i++) f->ids[i] = i;
    for (int64_t i = 0; i < n; i++) {
        f->offset[i] = 16 * i;
        f->depth[i] = depth;
        f->prompt[i] = prompt;
        f->output[i] = output;
        f->seed[i] = (uint64_t)i;
        f->arrival[i] = f->think[i] = 0;
        f->after[i] = -1;
    }
    f->q = (dlab_requests){.n = n,
                           .samples = 1,
                           .ids = f->ids,
                           .offset = f->offset,
                           .depth = f->depth,
                           .prompt = f->prompt,
                           .output = f->output,
                           .seed = f->seed};
}

#endif

/* The SmolLM2 file that some tests need: $DLAB_MODEL, or the user's cache folder. */
#ifndef DLAB_TESTS_ENGINE_REAL_MODEL_H
#define DLAB_TESTS_ENGINE_REAL_MODEL_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

/* False where there is no such file and none is required: the caller skips, and says so. */
static inline bool open_real_model(dlab_model **out, dlab_status *st, dlab_error *err)
{
    char path[1024];
    const char *model = getenv("DLAB_MODEL"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const char *required = getenv("DLAB_REQUIRE_MODEL");
    if (model && *model)
        snprintf(path, sizeof path, "%s", model);
    else if (cache && *cache)
        snprintf(path, sizeof path, "%s/decodelab/SmolLM2-135M-Instruct.Q4_1.gguf", cache);
    else
        snprintf(path, sizeof path, "%s/.cache/decodelab/SmolLM2-135M-Instruct.Q4_1.gguf", home ? home : "");
    *st = dlab_model_open(path, out, err);
    return *st != DLAB_EIO || (required && strcmp(required, "1") == 0);
}

#endif

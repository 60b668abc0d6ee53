/* The SmolLM2 file that some tests need: $DLAB_MODEL, or the user's cache folder. */
#ifndef DLAB_TESTS_ENGINE_REAL_MODEL_H
#define DLAB_TESTS_ENGINE_REAL_MODEL_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "engine/engine.h"

/* False where there is no such file and none is required: the caller skips, and says so. */
static inline bool open_real_model(dlab_model **out, dlab_status *st, dlab_error *err)
{
    char path[1024];
    const char *model = getenv("DLAB_MODEL"), *required = getenv("DLAB_REQUIRE_MODEL");
    if (model && *model)
        snprintf(path, sizeof path, "%s", model);
    else if (!dlab_cache_path("SmolLM2-135M-Instruct.Q4_1.gguf", path, sizeof path))
        path[0] = 0;
    *st = dlab_model_open(path, out, err);
    return *st != DLAB_EIO || (required && strcmp(required, "1") == 0);
}

#endif

#include "engine/kv/format.h"

const dlab_kv_format dlab_kv_format_f32 = {"f32", "32-bit floating point: exact, twice the bytes of f16", DLAB_F32,
                                           DLAB_SCALES_BIT(DLAB_SCALES_NONE)};

#include "engine/kv/format.h"

const dlab_kv_format dlab_kv_format_int8 = {
    "int8", "8-bit integers between each group's least and largest, with scale and zero point", DLAB_U8,
    DLAB_SCALES_BIT(DLAB_SCALES_TOKEN) | DLAB_SCALES_BIT(DLAB_SCALES_STEP) | DLAB_SCALES_BIT(DLAB_SCALES_BLOCK) |
        DLAB_SCALES_BIT(DLAB_SCALES_CHANNEL)};

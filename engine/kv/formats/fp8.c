#include "engine/kv/format.h"

const dlab_kv_format dlab_kv_format_fp8 = {
    "fp8", "8-bit floating point e4m3 with a scale: 3 bits of mantissa", DLAB_E4M3,
    DLAB_SCALES_BIT(DLAB_SCALES_TOKEN) | DLAB_SCALES_BIT(DLAB_SCALES_STEP) | DLAB_SCALES_BIT(DLAB_SCALES_BLOCK)};

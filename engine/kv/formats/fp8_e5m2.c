#include "engine/kv/format.h"

const dlab_kv_format dlab_kv_format_fp8_e5m2 = {
    "fp8_e5m2", "8-bit floating point e5m2 with a scale: more range, 2 bits of mantissa", DLAB_E5M2,
    DLAB_SCALES_BIT(DLAB_SCALES_TOKEN) | DLAB_SCALES_BIT(DLAB_SCALES_STEP) | DLAB_SCALES_BIT(DLAB_SCALES_BLOCK)};

#include "engine/kv/format.h"

const dlab_kv_format dlab_kv_format_int4 = {
    "int4", "4-bit integers with scale and zero point, every 32 elements of a vector on their own", DLAB_U4,
    DLAB_SCALES_BIT(DLAB_SCALES_TOKEN)};

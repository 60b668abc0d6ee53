#include "engine/kv/format.h"

const dlab_kv_format dlab_kv_format_bf16 = {"bf16",
                                            "bfloat16: the range of f32 with 8 bits of precision, the bytes of f16",
                                            DLAB_BF16, DLAB_SCALES_BIT(DLAB_SCALES_NONE)};

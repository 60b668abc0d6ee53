#include "engine/kv/format.h"

const dlab_kv_format dlab_kv_format_f16 = {"f16", "IEEE half precision: what most engines keep by default", DLAB_F16,
                                           DLAB_SCALES_BIT(DLAB_SCALES_NONE)};

/* --set KEY=VALUE of a plan, with an honest answer for words that are known but not built. */
#include <string.h>

#include "harness/spec/spec_parts.h"

static bool is_word(const dlab_spec_reserved *r, const char *value)
{
    for (size_t i = 0; i < sizeof r->words / sizeof *r->words && r->words[i]; i++) {
        size_t n = strlen(r->words[i]);
        if (strncmp(r->words[i], value, n) == 0 && (!value[n] || value[n] == ':')) return true;
    }
    return false;
}

dlab_status dlab_spec_plan_set(dlab_plan *plan, const char *assignment, dlab_error *err)
{
    const char *eq = strchr(assignment, '=');
    size_t n_rows, n_params, n_key = eq ? (size_t)(eq - assignment) : 0;
    const dlab_spec_reserved *rows = dlab_spec_reserved_words(&n_rows);
    const dlab_param *params = dlab_plan_params(&n_params);
    for (size_t i = 0; eq && i < n_rows; i++) {
        const dlab_spec_reserved *r = &rows[i];
        if (strlen(r->key) != n_key || strncmp(r->key, assignment, n_key) != 0) continue;
        if (is_word(r, eq + 1)) {
            return DLAB_FAIL(err, DLAB_ENOTBUILT, "%s: %.60s is not built in this version (`dlab list` has what is)",
                             r->key, eq + 1);
        }
        if (dlab_param_find(params, n_params, r->key)) break;
        return DLAB_FAIL(err, DLAB_ENOTBUILT, "%s is not built in this version; leave the key out", r->key);
    }
    return dlab_plan_set(plan, assignment, err);
}

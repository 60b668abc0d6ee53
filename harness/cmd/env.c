/* dlab env: what the machine looks like to a measurement. */
#include <stdlib.h>
#include <string.h>

#include "harness/cmd/cmd_util.h"
#include "harness/probes/probes.h"

static const char *const formats[] = {"text", "json", NULL};

static dlab_status set(int key, const char *arg, void *opts, dlab_error *err)
{
    (void)key;
    return dlab_cmd_choice("-o", arg, formats, (const char **)opts, err);
}

static const struct argp_option options[] = {{"output", 'o', "FORMAT", 0, "text (default) or json", 0}, {0}};

static const dlab_cmd_cli cli = {
    .name = "env",
    .about = "Prints what is known about the machine and this program; the same facts go into every record.",
    .example = "  dlab env\n  dlab env -o json",
    .options = options,
    .set = set,
};

static dlab_status run(const dlab_cmd_ctx *ctx, int argc, char **argv, int *exit_code, dlab_error *err)
{
    (void)ctx;
    *exit_code = 0;
    const char *format = formats[0];
    bool helped = false;
    dlab_settings env = {0};
    DLAB_TRY(dlab_cmd_parse(&cli, argc, argv, &format, &helped, err));
    if (helped) return DLAB_OK;
    dlab_status st = dlab_probe_environment(&env, err);
    if (st != DLAB_OK) goto done;
    if (format == formats[1]) {
        json_t *j = json_object();
        for (size_t i = 0; i < env.n; i++) {
            json_object_set_new(j, env.items[i].key,
                                dlab_cmd_text_json(env.items[i].value, strlen(env.items[i].value)));
        }
        st = dlab_cmd_print_json(j, err);
        goto done;
    }
    for (size_t i = 0; i < env.n; i++) printf("%-24s %s\n", env.items[i].key, env.items[i].value);
done:
    dlab_settings_free(&env);
    return st;
}

const dlab_command dlab_command_env = {.name = "env", .summary = "what the machine looks like", .run = run};
